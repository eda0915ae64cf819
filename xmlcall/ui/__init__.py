"""The page: what models wrote, how it was read, and why a call ran or did not, in a browser on this machine."""
