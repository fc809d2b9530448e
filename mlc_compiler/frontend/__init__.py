"""Models of other frameworks as modules: ``frontend.torch`` (PyTorch) and ``frontend.onnx``.

Operators are rows of tables, name -> function from graph values to graph values. ``frontend.torch`` imports PyTorch and
is imported by nothing else here.
"""
