"""Passes on tensor functions that are scheduled for GPUs."""
