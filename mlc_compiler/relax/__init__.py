"""The graph level of the IR: functions on tensors with symbolic shapes, dataflow blocks, calls of tensor functions."""
