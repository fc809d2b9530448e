"""Graph level: functions of tensors with symbolic shapes, dataflow blocks, calls of tensor functions."""
