"""Move topics to other shards while the service runs."""
