"""Beside other engines for language models on CPUs: `benchmarks/against_peers.py` runs it."""
