"""What model servers are sent and what they answer: requests to JSON, bytes to chunks. No I/O."""
