"""Targets: descriptions of the machine that code is compiled for, as text, JSON or attributes.

Each back end (``backends/``) defines one ``TargetKind``.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import Any, ClassVar

from mlc_errors import MLCError, UnsupportedError

Attribute = str | int | tuple[str, ...]

_SPACED = re.compile(r"(\s-[\w-]+)\s+(?=[^-\s])")
"""An option whose value is the next word: ``-num-cores 4``."""


@dataclass(frozen=True)
class TargetKind:
    """A kind of machine.

    name, aliases: accepted names of the kind. options: the options of a spec, with their types. complete: computes all
    attributes of a target from the given options; ``mtriple``, ``mcpu`` and ``mattr`` are LLVM's target triple, CPU
    and features. model: the option that ``kind:MODEL`` sets. has: whether a target supports an extension or one of
    ``CAPABILITIES``. host: the option with the LLVM triple of the CPU that runs graph functions.
    """

    name: str
    aliases: tuple[str, ...]
    options: Mapping[str, type]
    complete: Callable[[Mapping[str, Any]], Mapping[str, Attribute]]
    model: str
    has: Callable[[Target, str], bool]
    host: str = "mtriple"


CAPABILITIES = ("convert_float16", "fma", "round")
"""Instructions that shared code generation queries: float16 to float32 and back, fused multiply-add, rounding."""


class Target:
    """The machine that code is compiled for: a kind and its attributes.

        Target("cpu")                                 # this machine
        Target("cpu:znver4")                          # a CPU by LLVM's name
        Target("llvm -mcpu=znver4 -num-cores=8")      # Apache TVM's spelling
        Target({"kind": "llvm", "mcpu": "znver4"})    # the same as a mapping, or as JSON text
        with Target("cpu:x86-64-v3"): ...             # the default target inside the block

    attrs: all attributes of the kind by name. Raises UnsupportedError for an unknown kind, option or model.
    """

    __slots__ = ("attrs", "kind", "text")

    def __init__(self, spec: str | Mapping[str, Any] | Target = "cpu"):
        options = _options(spec)
        row = find_kind(options.pop("kind"))
        self.kind = row.name
        self.text = _spelled(row.name, options)
        self.attrs: Mapping[str, Attribute] = MappingProxyType(dict(row.complete(_checked(row, options))))

    @property
    def triple(self) -> str:
        """LLVM's target triple."""
        return str(self.attrs["mtriple"])

    @property
    def cpu(self) -> str:
        """LLVM's name of the processor."""
        return str(self.attrs["mcpu"])

    @property
    def features(self) -> str:
        """LLVM's feature string."""
        return str(self.attrs["mattr"])

    @property
    def arch(self) -> str:
        """The architecture: ``x86_64``, ``aarch64``, ``nvptx64``."""
        return self.triple.partition("-")[0]

    def has(self, extension: str) -> bool:
        """Whether the machine supports an extension, by LLVM's name (``avx512vnni``), or one of ``CAPABILITIES``."""
        return find_kind(self.kind).has(self, extension)

    def export(self) -> dict[str, Any]:
        """The kind and all attributes as JSON values. ``Target(target.export())`` is an equal target."""
        plain = {name: list(a) if isinstance(a, tuple) else a for name, a in self.attrs.items()}
        return {"kind": self.kind, **plain}

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Target({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and (self.kind, self.attrs) == (other.kind, other.attrs)

    def __hash__(self) -> int:
        return hash((self.kind, tuple(self.attrs.items())))

    # -- the target of a region of code ------------------------------------------------------------------------

    _entered: ClassVar[list[Token[Target | None]]] = []

    def __enter__(self) -> Target:
        self._entered.append(_current.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._entered.pop())

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The target of the innermost enclosing ``with Target(…)``, or None.

        Raises MLCError instead of returning None unless ``allow_none``.
        """
        found = _current.get()
        if found is None and not allow_none:
            raise MLCError("no target is set", hint="write `with Target(…):` around this, or pass a target")
        return found

    @staticmethod
    def from_device(device: object) -> Target:
        """The target of a device of this machine: ``"cpu"``, or an object with a ``type`` (``tvm_ffi.device("cpu")``).

        Raises UnsupportedError for a device that no kind of target describes.
        """
        name = device if isinstance(device, str) else str(getattr(device, "type", device))
        return Target(name.partition(":")[0])


_current: ContextVar[Target | None] = ContextVar("target", default=None)


def _kinds() -> list[TargetKind]:
    """The target kinds of all back ends, imported here because back ends import this module."""
    return [backend.kind for backend in import_module(".backends", __package__).BACKENDS.values()]


def find_kind(name: str) -> TargetKind:
    """The kind with this name or alias. Raises UnsupportedError, which lists the known kinds."""
    kinds = _kinds()
    for kind in kinds:
        if name in (kind.name, *kind.aliases):
            return kind
    raise UnsupportedError(f"no kind of target {name!r}", hint=f"kinds: {', '.join(k.name for k in kinds)}")


def as_target(spec: str | Mapping[str, Any] | Target | None) -> Target:
    """Convert any spec to a target; None is the current target, or else this machine's CPU."""
    if spec is None:
        return Target.current() or Target("cpu")
    return spec if isinstance(spec, Target) else Target(spec)


def with_host(spec: str | Mapping[str, Any] | Target, triple: str) -> Target:
    """``spec`` with the CPU that runs graph functions set to an LLVM triple, such as ``aarch64-linux-gnu``.

    Raises UnsupportedError for an unsupported CPU, MLCError when ``spec`` names another host.
    """
    options = _options(spec)
    row = find_kind(options["kind"])
    if options.setdefault(row.host, triple) != triple:
        raise MLCError(f"target {row.name}: {row.host} is {options[row.host]}; the host is {triple}")
    return Target(options)


def _options(spec: object) -> dict[str, Any]:
    """Convert a spec to a mapping with the key ``kind``."""
    if isinstance(spec, Target):
        return spec.export()
    if isinstance(spec, str):
        return _from_text(spec.strip())
    if isinstance(spec, Mapping):
        if not isinstance(spec.get("kind"), str):
            raise MLCError(f"target: got {dict(spec)!r}; expected a mapping with the key 'kind'")
        return dict(spec)
    raise MLCError(f"target: got a {type(spec).__name__}; expected a name such as cpu, a mapping or a Target")


def _from_text(text: str) -> dict[str, Any]:
    if text.startswith("{"):
        try:
            return _options(json.loads(text))
        except ValueError as error:
            raise MLCError(f"target: got text that is not JSON: {error}") from None
    head, *words = _SPACED.sub(r"\1=", text).split() or [""]
    kind, _, model = head.partition(":")
    options: dict[str, Any] = {"kind": kind, **dict(map(_word, words))}
    if model and model != "native":
        name = find_kind(kind).model
        if options.setdefault(name, model) != model:
            raise MLCError(f"target {kind}: {name} is {model} and {options[name]}; expected one of them")
    return options


def _word(word: str) -> tuple[str, str]:
    """``-mcpu=znver4`` or ``--num-cores=8`` as a pair."""
    name, equals, value = word.lstrip("-").partition("=")
    if not word.startswith("-") or not equals:
        raise MLCError(f"target: got {word!r}; expected -option=value")
    return name, value


def _checked(row: TargetKind, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options in their declared types. Raises UnsupportedError for an unknown option, MLCError for a wrong type."""
    result = {}
    for name, value in options.items():
        if name not in row.options:
            near = get_close_matches(name, row.options, n=1)
            hint = f"did you mean {near[0]}?" if near else f"options: {', '.join(row.options)}"
            raise UnsupportedError(f"target {row.name}: no option {name!r}", hint=hint)
        result[name] = _converted(row, name, value)
    return result


def _converted(row: TargetKind, name: str, value: Any) -> Any:
    wanted = row.options[name]
    if wanted is tuple and isinstance(value, list | tuple):
        return tuple(map(str, value))
    if wanted is tuple and isinstance(value, str):
        names = tuple(value.split(","))
        if all(names):
            return names
    if wanted is int and isinstance(value, str) and value.isdecimal():
        value = int(value)
    if wanted is int and isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if wanted is str and isinstance(value, str):
        return value
    expected = {int: "a positive number", str: "text", tuple: "names with a comma between each two"}[wanted]
    raise MLCError(f"target {row.name}: {name} is {value!r}; expected {expected}")


def _spelled(kind: str, options: Mapping[str, Any]) -> str:
    words = (f"-{name}={','.join(v) if isinstance(v, list | tuple) else v}" for name, v in options.items())
    return " ".join([kind, *words])


def host_arch() -> str:
    """This machine's architecture by LLVM's name: ``x86_64``, ``aarch64``."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def available_cores() -> int:
    """The number of logical cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
