"""Importers of models of other frameworks: ``frontend.torch`` (PyTorch) and ``frontend.onnx``.

Each operator is a row of a table: name -> function from graph values to graph values. ``frontend.torch`` imports
PyTorch and is not imported by any other module of the compiler.
"""
