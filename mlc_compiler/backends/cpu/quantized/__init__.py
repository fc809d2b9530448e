"""Matmuls with quantized weights in integer arithmetic; ``products.py`` has the formula."""
