"""States: what exported functions keep of sequences from call to call, in arrays that the caller owns.

A model declares a list of states. Each says which arrays a function takes for it, what a traced function makes of them
(its view), and how the caller allocates them. All states of a call share ``token_seq`` and ``token_pos``, int32 [n]:
the sequence of each token, a row of page tables and slots, and its position there. A token at position -1 belongs to
no sequence: it changes no state, and what is computed for it is not read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import spec
from .tensor import Tensor


@dataclass(frozen=True)
class Tokens:
    """The places of the tokens of a call. single_query: the caller says that no two of them are of one sequence."""

    token_seq: Tensor
    token_pos: Tensor
    single_query: bool = False


class State(ABC):
    """One state of a model; its inputs are named ``prefix + name``, with another prefix for each state of a kind."""

    prefix: str

    @abstractmethod
    def fields(self) -> dict[str, spec.Tensor]:
        """The arrays that a function takes, by name without prefix."""

    @abstractmethod
    def view(self, tensors: Mapping[str, Tensor], tokens: Tokens) -> Any:
        """What a traced function works with, made of the arrays that ``fields`` names."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The state in the library's metadata: ``kind``, ``prefix``, and the sizes that the caller allocates."""

    @property
    @abstractmethod
    def bytes_per_token(self) -> int:
        """By how many bytes the state of a sequence grows with a token."""


def inputs(states: Sequence[State], num_tokens: int | str, single_query: bool = False) -> spec.Object:
    """The states as one argument of an exported function of ``num_tokens`` tokens, which sees a tuple of their views.

    single_query: see ``Tokens``.
    """
    fields = {state.prefix + name: tensor for state in states for name, tensor in state.fields().items()}
    fields |= {name: spec.Tensor((num_tokens,), "int32") for name in ("token_seq", "token_pos")}

    def views(token_seq: Tensor, token_pos: Tensor, **tensors: Tensor) -> tuple[Any, ...]:
        tokens = Tokens(token_seq, token_pos, single_query)
        return tuple(s.view({n: tensors[s.prefix + n] for n in s.fields()}, tokens) for s in states)

    return spec.Object(views, fields, mutable=True)


@dataclass(frozen=True)
class SequenceArray:
    """An array that every sequence has one of; it is zero when a sequence begins."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"


@dataclass(frozen=True)
class Recurrent(State):
    """Arrays of a fixed size for each sequence.

    A function takes each as [slots, *shape], which it updates in place, and ``slots``, int32 [sequences], which says
    where a sequence's is.
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


@dataclass
class RecurrentState:
    """A recurrent state as a traced function sees it.

    arrays: by name, [slots, *shape]; an operation that updates one in place gives the tensor that takes its place here.
    """

    arrays: dict[str, Tensor]
    slots: Tensor
    token_seq: Tensor
    token_pos: Tensor
