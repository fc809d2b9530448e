"""Matmuls with quantized weights in integer arithmetic; ``matmuls.py`` has the formula."""
