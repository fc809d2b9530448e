"""Passes: one rewrite of a module in a file, under a name; ``pipeline.py`` puts them in order."""
