"""The proxy seen from outside: metrics, traces, probes and a log that programs read."""
