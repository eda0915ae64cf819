"""Wire formats of model servers: requests to JSON, bytes to chunks. No I/O."""
