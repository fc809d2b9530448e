"""Tensor level: loops, blocks and buffers; tensor expressions; schedules."""
