"""The wire formats of clients: read their requests and write their answers."""
