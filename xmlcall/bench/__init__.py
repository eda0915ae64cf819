"""The harness: how well a model calls tools, and at which layer it fails."""
