"""The front end: PyTorch-like modules whose ``forward`` is traced to an IRModule.

    class MLP(nn.Module):
        def __init__(self):
            self.up, self.down = nn.Linear(784, 128), nn.Linear(128, 10)

        def forward(self, x):
            return self.down(op.relu(self.up(x)))

    mod, parameters = MLP().export({"forward": {"x": spec.Tensor(("n", 784))}})

``op`` contains the operations, ``spec`` the specifications of exported functions. ``Module.jit`` exports and compiles.
"""

from . import op, spec
from .extern import ExternModule, ObjectModule, SourceModule
from .layers import GELU, Embedding, Experts, GroupNorm, LayerNorm, Linear, ReLU, RMSNorm, SiLU
from .mixture import Choice, Routing, clamped_swiglu, gated, mixture, swiglu
from .module import Module, ModuleList
from .tensor import Parameter, ParameterError, Tensor

__all__ = [
    "GELU",
    "Choice",
    "Embedding",
    "Experts",
    "ExternModule",
    "GroupNorm",
    "LayerNorm",
    "Linear",
    "Module",
    "ModuleList",
    "ObjectModule",
    "Parameter",
    "ParameterError",
    "RMSNorm",
    "ReLU",
    "Routing",
    "SiLU",
    "SourceModule",
    "Tensor",
    "clamped_swiglu",
    "gated",
    "mixture",
    "op",
    "spec",
    "swiglu",
]
