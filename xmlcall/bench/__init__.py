"""The benchmark harness: measures how well a model calls tools, and at which layer it fails."""
