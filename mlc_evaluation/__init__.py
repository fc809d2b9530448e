"""Debugging and measurement of compiled models: kernel results, speed, and accuracy of predictions."""
