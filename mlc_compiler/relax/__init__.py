"""The graph level of the IR: functions of tensors with symbolic shapes, dataflow blocks, calls of tensor functions."""
