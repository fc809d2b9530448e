"""Schedule rules: schedules of tensor functions for a target, by pattern."""
