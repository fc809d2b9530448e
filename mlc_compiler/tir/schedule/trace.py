"""Traces: the steps of a schedule as data, printable as Python, serializable as JSON, replayable on a schedule.

b0 = sch.get_block("Y")
l1, l2, l3 = sch.get_loops(b0)
l4, l5 = sch.split(l2, factors=[None, 4])
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ...ir.expr import BinaryOp, IntImm, PrimExpr, Var, binary
from ..index_map import IndexMap
from ..nodes import Buffer
from .sampling import Choice, Location
from .tree import ScheduleError

INFIX = ("+", "-", "*", "//", "%")
SAMPLES = ("sample_perfect_tile", "sample_categorical", "sample_compute_location")


class BlockName(str):
    """The name of a block, with the name of its function."""

    func_name: str

    def __new__(cls, name: str, func_name: str) -> BlockName:
        self = super().__new__(cls, name)
        self.func_name = func_name
        return self


class Steps(Protocol):
    """Interface of a schedule on which a trace is replayed; it also has the recorded methods."""

    step_names: frozenset[str]

    def size(self, name: str) -> Var: ...


@dataclass(frozen=True)
class Ref:
    """A reference to a value that an earlier step returned."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Size:
    """A symbolic size of the function."""

    name: str

    def __repr__(self) -> str:
        return f"sch.size({json.dumps(self.name)})"


@dataclass(frozen=True)
class Infix:
    """Arithmetic on symbolic sizes."""

    op: str
    a: Any
    b: Any

    def __repr__(self) -> str:
        if self.op in ("min", "max"):
            return f"sch.{self.op}imum({self.a!r}, {self.b!r})"
        return f"({self.a!r} {self.op} {self.b!r})"


@dataclass(frozen=True)
class Step:
    """One call. ``outputs``: the returned structure with names for values, as ``["l1", ["l2", None]]``.

    options: the possible decisions of a sampling step whose arguments do not say them.
    """

    name: str
    args: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    outputs: Any = None
    options: tuple[int, ...] = ()

    def __str__(self) -> str:
        args = [_literal(a) for a in self.args]
        args += [f"{k}={_literal(v)}" for k, v in self.keywords.items()]
        call = f"sch.{self.name}({', '.join(args)})"
        return f"{_target(self.outputs)} = {call}" if _has_names(self.outputs) else call


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_literal(v) for v in value)}]"
    return repr(value)


def _has_names(outputs: Any) -> bool:
    return any(map(_has_names, outputs)) if isinstance(outputs, list) else outputs is not None


def _target(outputs: Any, nested: bool = False) -> str:
    if not isinstance(outputs, list):
        return outputs or "_"
    inner = ", ".join(_target(o, nested=True) for o in outputs)
    if nested:
        return f"[{inner}]"
    return f"({inner},)" if len(outputs) == 1 else inner


class Trace:
    """A list of steps. ``str(trace)`` is Python code; ``trace.apply_to_schedule(sch)`` replays it."""

    def __init__(self, steps: Sequence[Step] = ()):
        self.steps = list(steps)
        self._names: dict[object, str] = {}
        self._kept: list[object] = []
        self._count = 0

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    def show(self) -> None:
        """Print the steps."""
        print(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and self.steps == other.steps

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    # -- recording ----------------------------------------------------------------------------------------------

    def has_name(self, value: object) -> bool:
        return _identity(value) in self._names

    def encode(self, value: Any) -> Any:
        """Encode an argument as data: results of earlier steps, sizes and buffers by name."""
        if self.has_name(value):
            return Ref(self._names[_identity(value)])
        if isinstance(value, list | tuple):
            return [self.encode(v) for v in value]
        if isinstance(value, Buffer):
            return value.name
        if isinstance(value, PrimExpr):
            return _encode_expr(value)
        if isinstance(value, Choice):
            return int(value)
        if isinstance(value, Location):
            raise ScheduleError("a location that another schedule sampled; expected one of this schedule")
        if isinstance(value, IndexMap) or callable(value):
            return value.text if isinstance(value, IndexMap) else IndexMap.from_func(value).text
        return str(value) if isinstance(value, str) else value

    def record(self, name: str, args: Sequence[Any], keywords: Mapping[str, Any], result: Any) -> None:
        """Add a step with encoded arguments, and name the values that it returned."""
        options = result.options if isinstance(result, Location) else ()
        self.steps.append(Step(name, tuple(args), dict(keywords), self._named(result), options))

    def _named(self, result: Any) -> Any:
        if isinstance(result, list | tuple):
            return [self._named(r) for r in result]
        letter = "b" if isinstance(result, BlockName) else "l" if isinstance(result, Var | Location) else "v"
        if letter == "v" and not isinstance(result, Choice):
            return None
        known = self._names.get(_identity(result))
        if known is None or letter == "b":
            known = f"{letter}{self._count}"
            self._count += 1
            self._names[_identity(result)] = known
            self._kept.append(result)
        return known

    def copy(self) -> Trace:
        """A copy of the trace that can be extended independently."""
        other = Trace(self.steps)
        other._names, other._kept, other._count = dict(self._names), list(self._kept), self._count
        return other

    # -- replaying ----------------------------------------------------------------------------------------------

    def apply_to_schedule(self, sch: Steps, decisions: Mapping[int, Any] | None = None) -> None:
        """Replay all steps. ``decisions``: replacements for the decisions of sampling steps, by position in the trace.

        Raises ScheduleError, which names the step, when a step fails.
        """
        values: dict[str, Any] = {}
        for i, step in enumerate(self.steps):
            step = _decided(step, decisions[i]) if decisions and i in decisions else step
            if step.name not in sch.step_names:
                raise ScheduleError(f"trace: there is no step {step.name!r}")
            args = [_decode(a, values, sch) for a in step.args]
            keywords = {k: _decode(v, values, sch) for k, v in step.keywords.items()}
            try:
                result = getattr(sch, step.name)(*args, **keywords)
            except ScheduleError as error:
                raise ScheduleError(error.message, where=[*error.where, str(step)], hint=error.hint) from error
            _bind(step.outputs, result, values)

    @property
    def decisions(self) -> dict[int, Any]:
        """The decisions of the sampling steps, by position in the trace."""
        return {i: s.keywords["decision"] for i, s in enumerate(self.steps) if s.name in SAMPLES}

    # -- JSON ---------------------------------------------------------------------------------------------------

    def as_json(self) -> str:
        """The steps as JSON text, which ``from_json`` reads back."""
        return json.dumps([_step_to_json(s) for s in self.steps])

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """Parse the JSON text of a trace. Raises ScheduleError for any other text."""
        try:
            return cls([_step_from_json(s) for s in json.loads(text)])
        except (ValueError, KeyError, TypeError) as error:
            raise ScheduleError(f"trace: got a text that is no list of steps: {error}") from error


def _identity(value: object) -> object:
    if isinstance(value, BlockName):
        return ("block", value.func_name, str(value))
    return ("object", id(value)) if isinstance(value, Var | Choice | Location) else None


def _encode_expr(expr: PrimExpr) -> Any:
    if isinstance(expr, IntImm):
        return expr.value
    if isinstance(expr, Var):
        return Size(expr.name)
    if isinstance(expr, BinaryOp) and expr.op in (*INFIX, "min", "max"):
        return Infix(expr.op, _encode_expr(expr.a), _encode_expr(expr.b))
    raise ScheduleError(f"an argument of a step is {type(expr).__name__}; expected arithmetic on sizes")


def _decode(value: Any, values: Mapping[str, Any], sch: Steps) -> Any:
    if isinstance(value, list):
        return [_decode(v, values, sch) for v in value]
    if isinstance(value, Ref):
        if value.name not in values:
            raise ScheduleError(f"trace: no earlier step gives {value.name}")
        return values[value.name]
    if isinstance(value, Size):
        return sch.size(value.name)
    if isinstance(value, Infix):
        return binary(value.op, _decode(value.a, values, sch), _decode(value.b, values, sch))
    return value


def _bind(outputs: Any, result: Any, values: dict[str, Any]) -> None:
    if isinstance(outputs, list):
        if len(outputs) != len(result):
            raise ScheduleError(f"trace: a step gives {len(result)} values; the trace was made with {len(outputs)}")
        for o, r in zip(outputs, result, strict=True):
            _bind(o, r, values)
    elif outputs is not None:
        values[outputs] = result


def _decided(step: Step, decision: Any) -> Step:
    return replace(step, keywords={**step.keywords, "decision": decision})


_KINDS: dict[str, type] = {"ref": Ref, "size": Size}


def _to_json(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_to_json(v) for v in value]
    if isinstance(value, Ref):
        return {"ref": value.name}
    if isinstance(value, Size):
        return {"size": value.name}
    if isinstance(value, Infix):
        return {"op": value.op, "a": _to_json(value.a), "b": _to_json(value.b)}
    return {"dict": {k: _to_json(v) for k, v in value.items()}} if isinstance(value, Mapping) else value


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "op" in value:
        return Infix(value["op"], _from_json(value["a"]), _from_json(value["b"]))
    ((kind, content),) = value.items()
    if kind == "dict":
        return {k: _from_json(v) for k, v in content.items()}
    return _KINDS[kind](content)


def _step_to_json(step: Step) -> dict[str, Any]:
    keywords = {k: _to_json(v) for k, v in step.keywords.items()}
    data = {"step": step.name, "args": _to_json(step.args), "keywords": keywords, "outputs": step.outputs}
    return {**data, "options": list(step.options)} if step.options else data


def _step_from_json(value: Mapping[str, Any]) -> Step:
    keywords = {k: _from_json(v) for k, v in value["keywords"].items()}
    return Step(
        value["step"], tuple(_from_json(value["args"])), keywords, value["outputs"], tuple(value.get("options", ()))
    )
