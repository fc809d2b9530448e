"""The front end: PyTorch-like modules whose forward is traced to an IRModule."""

from . import op, spec
from .layers import GELU, Embedding, GroupNorm, LayerNorm, Linear, ReLU, RMSNorm, SiLU
from .module import Module, ModuleList
from .tensor import Parameter, ParameterError, Tensor

__all__ = [
    "GELU",
    "Embedding",
    "GroupNorm",
    "LayerNorm",
    "Linear",
    "Module",
    "ModuleList",
    "Parameter",
    "ParameterError",
    "RMSNorm",
    "ReLU",
    "SiLU",
    "Tensor",
    "op",
    "spec",
]
