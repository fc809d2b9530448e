"""Schedules by rule: which loops a tensor function gets on a target."""
