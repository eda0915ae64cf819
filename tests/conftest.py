"""What holds for all tests."""

import signal

# A suite that is started in the background (`nohup make test &`, some schedulers) ignores Ctrl-C, and so would the programs that
# it starts and interrupts: what is ignored stays ignored in a child, what has a handler does not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
