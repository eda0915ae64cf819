"""Observability of the proxy: metrics, traces, probes and a machine-readable log."""
