"""What replicas of the proxy share: rounds of its own tools, and how much each key has used."""
