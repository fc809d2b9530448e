"""Operations of mixtures of experts, see ``relax.ops.experts``."""

from __future__ import annotations

from ...relax import ops
from .traced import traced

expert_linear = traced(ops.expert_linear)
expert_sum = traced(ops.expert_sum)
inverse_permutation = traced(ops.inverse_permutation)
sorted_places = traced(ops.sorted_places)
top_indices = traced(ops.top_indices)
