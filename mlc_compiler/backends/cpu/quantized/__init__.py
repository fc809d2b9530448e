"""Products with quantized weights in integer arithmetic; ``products.py`` says how."""
