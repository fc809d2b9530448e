"""Default schedule rules for GPUs, in the order in which they are tried."""

from .fallback import Fallback

CUDA_RULES = (Fallback(),)
