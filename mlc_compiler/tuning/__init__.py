"""Search over schedules: spaces of candidates, strategies, measurement in worker processes, a database of results."""
