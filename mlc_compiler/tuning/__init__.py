"""Schedule search (autotuning): search spaces, strategies, measurement in worker processes, database of results."""
