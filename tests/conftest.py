"""What holds for all tests."""

import atexit
import os
import shutil
import signal
import tempfile
from pathlib import Path

import profiles  # noqa: F401 - what `--hypothesis-profile` names

# A suite that is started in the background (`nohup make test &`, some schedulers) ignores Ctrl-C or hang-ups, and so would the
# programs that it starts and ends by them: what is ignored stays ignored in a child, what has a handler does not.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

records = tempfile.mkdtemp(prefix="xmlcall-records-")  # nothing that tests do is kept for this machine's user
atexit.register(shutil.rmtree, records, ignore_errors=True)
os.environ["XMLCALL_RECORDS"] = records
os.environ["XMLCALL_PROFILES"] = str(Path(tempfile.gettempdir()) / "xmlcall-has-no-profiles")  # not those of this machine's user
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"  # nor their keyring
