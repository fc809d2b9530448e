"""Passes: each file defines one named rewrite of a module; ``pipeline.py`` orders them."""
