"""Comparison with other LLM engines on CPUs; `benchmarks/against_peers.py` runs it."""
