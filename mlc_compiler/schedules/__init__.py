"""Schedule rules: pattern-based schedules of tensor functions for a target."""
