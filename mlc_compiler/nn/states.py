"""States: per-sequence data kept between calls of exported functions, in arrays that the caller owns.

A model declares a list of states. Each defines the arrays that a function takes, the view of them in a traced
function, and the metadata by which the caller allocates them. All states of a call share ``token_seq`` and
``token_pos``, int32 [n]: the sequence of each token (a row of page tables and slots) and its position in it. A
token at position -1 is padding: it does not change a state, and its results are unused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ..ir import dtype as dt
from ..relax.ops import Operator
from . import spec
from .tensor import Tensor, apply_tuple


@dataclass(frozen=True)
class Tokens:
    """Sequences and positions of a call's tokens. single_query: the caller guarantees one token per sequence.

    lengths: int32 [sequences] for bidirectional attention, where tokens see all positions of their sequence; None
    for causal attention. rotary_pos: int32 [axes, n], positions for the rotation of states that have
    several position axes.
    """

    token_seq: Tensor
    token_pos: Tensor
    single_query: bool = False
    lengths: Tensor | None = None
    rotary_pos: Tensor | None = None


class State(ABC):
    """One state of a model; its inputs are named ``prefix + name``. Prefixes of states of one kind must differ."""

    prefix: str

    @property
    def position_axes(self) -> int:
        """The number of position axes of the rotation; 0 where it uses ``token_pos``."""
        return 0

    @abstractmethod
    def fields(self) -> dict[str, spec.Tensor]:
        """The arrays that a function takes for the state, by name without prefix."""

    @abstractmethod
    def view(self, tensors: Mapping[str, Tensor], tokens: Tokens) -> Any:
        """The state in a traced function, from its arrays (see ``fields``)."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The state's entry in the library's metadata: ``kind``, ``prefix``, and the sizes of its arrays."""

    @property
    @abstractmethod
    def bytes_per_token(self) -> int:
        """Bytes of state per token of a sequence."""

    @property
    def bytes_per_sequence(self) -> int:
        """Bytes of state per sequence, independent of its length."""
        return 0


def inputs(
    states: Sequence[State], num_tokens: int | str, single_query: bool = False, bidirectional: Sequence[State] = ()
) -> spec.Object:
    """The input spec of all states for a function of ``num_tokens`` tokens; the argument is a tuple of views.

    single_query: see ``Tokens``. bidirectional: the states whose views have ``lengths`` (see ``Tokens``), which become
    an input if there are any. ``rotary_pos`` is an input if a state has ``position_axes``.
    """
    fields = {state.prefix + name: tensor for state in states for name, tensor in state.fields().items()}
    fields |= {name: spec.Tensor((num_tokens,), "int32") for name in ("token_seq", "token_pos")}
    fields |= {"lengths": spec.Tensor(("num_seqs",), "int32")} if bidirectional else {}
    if axes := max((state.position_axes for state in states), default=0):
        fields["rotary_pos"] = spec.Tensor((axes, num_tokens), "int32")

    def views(
        token_seq: Tensor,
        token_pos: Tensor,
        lengths: Tensor | None = None,
        rotary_pos: Tensor | None = None,
        **tensors: Tensor,
    ) -> tuple[Any, ...]:
        causal = Tokens(token_seq, token_pos, single_query, None, rotary_pos)
        both_ways = replace(causal, lengths=lengths)

        def view(state: State) -> Any:
            tokens = both_ways if any(state is seen for seen in bidirectional) else causal
            return state.view({n: tensors[state.prefix + n] for n in state.fields()}, tokens)

        return tuple(map(view, states))

    return spec.Object(views, fields, mutable=True)


@dataclass(frozen=True)
class NewState:
    """The result of an exported function that creates a state: its arrays, one for each of ``state.fields()``."""

    state: State
    arrays: tuple[Tensor, ...]


@dataclass(frozen=True)
class SequenceArray:
    """An array of which each sequence has one, initially zero; ``shape`` excludes the axis of slots."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"


@dataclass(frozen=True)
class Recurrent(State):
    """A state of arrays with a fixed size per sequence, for recurrent layers.

    A function takes each array as [slots, *shape], updated in place, and ``slots``, int32 [sequences], the slot of
    each sequence.
    """

    arrays: tuple[SequenceArray, ...]
    prefix: str = ""

    def fields(self) -> dict[str, spec.Tensor]:
        named = {a.name: spec.Tensor(("num_slots", *a.shape), a.dtype) for a in self.arrays}
        return {**named, "slots": spec.Tensor(("num_seqs",), "int32")}

    def view(self, tensors: Mapping[str, Tensor], tokens: Tokens) -> RecurrentState:
        arrays = {a.name: tensors[a.name] for a in self.arrays}
        return RecurrentState(arrays, tensors["slots"], tokens.token_seq, tokens.token_pos)

    def describe(self) -> dict[str, Any]:
        arrays = [{"name": a.name, "shape": list(a.shape), "dtype": a.dtype} for a in self.arrays]
        return {"kind": "recurrent", "prefix": self.prefix, "arrays": arrays}

    @property
    def bytes_per_token(self) -> int:
        return 0

    @property
    def bytes_per_sequence(self) -> int:
        return sum(prod(a.shape) * dt.nbytes(a.dtype) for a in self.arrays)


@dataclass
class RecurrentState:
    """The view of a recurrent state in a traced function.

    arrays: [slots, *shape] by name; an operation that updates an array in place must store its result here.
    """

    arrays: dict[str, Tensor]
    slots: Tensor
    token_seq: Tensor
    token_pos: Tensor

    def update(
        self, name: str, operator: Operator, layer: int, *args: Tensor, more: Sequence[Tensor] = (), **attrs: Any
    ) -> Tensor:
        """Apply ``operator(array, *args, slots, token_seq, token_pos, layer, *more)``, see ``relax.ops.recurrent``.

        It updates the array of this name in place; returns its other result.
        """
        places = (self.slots, self.token_seq, self.token_pos)
        updated = apply_tuple(operator, self.arrays[name], *args, *places, layer, *more, **attrs)
        self.arrays[name], result = updated
        return result
