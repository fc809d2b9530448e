"""Matmul kernels for GPUs: on tensor cores, and in float32 by fused multiply-adds."""
