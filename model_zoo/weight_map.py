"""Weight maps: rules from checkpoint tensors to model parameters, checked before tensor data is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from mlc_errors import MLCError
from model_zoo.weight_expr import (
    CheckpointTensor,
    Computed,
    Concat,
    Either,
    Expr,
    Flatten,
    Offset,
    Permute,
    Shape,
    Slice,
    Stack,
    Taps,
    Transpose,
    as_expr,
)

SUFFIXES = (".weight", ".bias")
SHOWN_PROBLEMS = 8
NEAR_MATCH_POOL = 2000


class WeightMapError(MLCError):
    """Checkpoint and model do not fit together."""

    code = "MLC7"


@dataclass(frozen=True)
class Production:
    """One model parameter and the expression that computes it."""

    name: str
    shape: Shape
    value: Expr

    def __str__(self) -> str:
        return f"{self.name} {list(self.shape)} = {self.value}"


@dataclass(frozen=True)
class WeightPlan:
    """A resolved map. ``productions`` are in the order in which the checkpoint names their first source.

    unused: checkpoint tensors declared unused. copies: (tensor, tensor that it must equal) for tied weights.
    """

    productions: tuple[Production, ...]
    unused: tuple[str, ...] = ()
    copies: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON types: parameters with their shape and what makes them, tied and unused tensors."""
        made = [{"name": p.name, "shape": list(p.shape), "from": str(p.value)} for p in self.productions]
        tied = [{"name": copy, "equals": original} for copy, original in self.copies]
        return {"parameters": made, "tied": tied, "unused": list(self.unused)}

    def __str__(self) -> str:
        lines = [str(production) for production in self.productions]
        lines += [f"(tied)   {copy} must equal {original}" for copy, original in self.copies]
        lines += [f"(unused) {name}" for name in self.unused]
        return "\n".join(lines)


@dataclass(frozen=True)
class Rule:
    """Assigns a value, split along ``axis``, to ``targets``; a single target is the value itself."""

    targets: tuple[str, ...]
    value: Expr
    axis: int = 0

    def with_suffix(self, suffix: str) -> Rule:
        targets = tuple(target + suffix for target in self.targets)
        return Rule(targets, self.value.map_names(lambda name: name + suffix), self.axis)

    def productions(self, parameters: Mapping[str, Shape]) -> Iterator[Production]:
        if len(self.targets) == 1:
            yield Production(self.targets[0], parameters[self.targets[0]], self.value)
            return
        start = 0
        for target in self.targets:
            stop = start + parameters[target][self.axis]
            yield Production(target, parameters[target], Slice((self.value,), self.axis, start, stop))
            start = stop


@dataclass
class WeightMap:
    """Rules from checkpoint names to parameter names. Parameters without a rule have the same name in the checkpoint.

    A name without ``.weight`` or ``.bias`` stands for whichever of the two the model has. A source is a name or, for
    nested rules, an expression of ``weight_expr``.
    """

    rules: list[Rule] = field(default_factory=list)
    unused_patterns: list[str] = field(default_factory=list)
    tied_names: list[tuple[str, str | None]] = field(default_factory=list)
    prefixes: list[tuple[str, str]] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)

    def layers(self, pattern: str, count: int) -> Iterator[str]:
        """The prefixes of ``count`` layers: ``"model.layers.{}"`` gives ``model.layers.0``, ``model.layers.1``, …"""
        return (pattern.format(index) for index in range(count))

    def rename(self, target: str, source: str | Expr) -> None:
        self._add((target,), as_expr(source))

    def concat(self, target: str, sources: Sequence[str | Expr], axis: int = 0) -> None:
        self._add((target,), Concat(tuple(map(as_expr, sources)), axis))

    def either(self, target: str, *sources: str | Expr) -> None:
        """Use the first source whose tensors all exist in the checkpoint, for names that differ between versions."""
        self._add((target,), Either(tuple(map(as_expr, sources))))

    def stack(self, target: str, sources: Sequence[str | Expr]) -> None:
        """``target[i]`` is ``sources[i]``."""
        self._add((target,), Stack(tuple(map(as_expr, sources))))

    def transpose(self, target: str, source: str | Expr | None = None) -> None:
        """Swap the last two axes; a bias is taken as it is."""
        self._add((target,), Transpose((as_expr(source or target),)))

    def taps(self, target: str, source: str | None = None) -> None:
        """[K, C] from the weight of a depthwise convolution; a bias is taken as it is."""
        self._add((target,), Taps((as_expr(source or target),)))

    def split(self, targets: Sequence[str], source: str | Expr, axis: int = 0) -> None:
        """Cut ``source`` along ``axis`` into the targets, whose shapes give the sizes."""
        self._add(tuple(targets), as_expr(source), axis)

    def permute(
        self, target: str, source: str | Expr | None = None, *, view: Sequence[int], order: Sequence[int], axis: int = 0
    ) -> None:
        """Reorder an axis: reshape it to ``view``, transpose by ``order``, flatten (weights and biases alike)."""
        self._add((target,), Permute((as_expr(source or target),), tuple(view), tuple(order), axis))

    def offset(self, target: str, value: float, source: str | Expr | None = None) -> None:
        """Add ``value`` to every element."""
        self._add((target,), Offset((as_expr(source or target),), value))

    def flatten(self, target: str, source: str | Expr | None = None) -> None:
        """Join the axes after the first: turns the weight of a convolution of disjoint windows into a matmul's."""
        self._add((target,), Flatten((as_expr(source or target),)))

    def computed(self, target: str, sources: Sequence[str | Expr], function: Callable[..., np.ndarray]) -> None:
        """Apply a function to the sources, numpy arrays in the checkpoint's dtypes. It is also called with zeros."""
        self._add((target,), Computed(tuple(map(as_expr, sources)), function))

    def unused(self, pattern: str) -> None:
        """Declare checkpoint tensors (shell pattern) that the model does not need; they need not exist."""
        self.unused_patterns.append(pattern)

    def only(self, pattern: str) -> None:
        """Checkpoint tensors of the model, in a checkpoint of a larger one: others need no use."""
        self.parts.append(pattern)

    def tied(self, name: str, to: str | None = None) -> None:
        """Declare a checkpoint tensor that, if present, repeats ``to``; conversion checks that they are equal."""
        self.tied_names.append((name, to))

    def optional_prefix(self, prefix: str) -> None:
        """Accept checkpoints with and without ``prefix`` before their names."""
        self.other_prefix(prefix, "")

    def other_prefix(self, prefix: str, other: str) -> None:
        """Accept checkpoints in which names begin with ``other`` instead of ``prefix``."""
        self.prefixes.append((prefix, other))

    def within(self, prefix: str) -> WeightMap:
        """The map of a model that contains this one, with ``prefix`` before all names in model and checkpoint."""
        rules = [
            Rule(tuple(prefix + target for target in r.targets), r.value.map_names(lambda name: prefix + name), r.axis)
            for r in self.rules
        ]
        tied = [(prefix + name, prefix + to if to else None) for name, to in self.tied_names]
        prefixes = [(prefix + ours, prefix + other) for ours, other in self.prefixes]
        return WeightMap(rules, [prefix + pattern for pattern in self.unused_patterns], tied, prefixes)

    def resolve(self, parameters: Mapping[str, Shape], sources: Mapping[str, Shape]) -> WeightPlan:
        """Match the model's parameters with the checkpoint's tensors.

        Raises WeightMapError, with names from both sides and near matches, unless every parameter is produced exactly
        once with its shape and every tensor is used or declared unused.
        """
        return _Resolver(self, parameters, sources).plan()

    def _add(self, targets: tuple[str, ...], value: Expr, axis: int = 0) -> None:
        self.rules.append(Rule(targets, value, axis))


class _Resolver:
    def __init__(self, weight_map: WeightMap, parameters: Mapping[str, Shape], sources: Mapping[str, Shape]):
        self.map = weight_map
        self.parameters = parameters
        self.sources = sources
        self.used: set[str] = set()
        self.problems: list[str] = []

    def plan(self) -> WeightPlan:
        productions = [self._locate(production) for production in self._productions()]
        copies = tuple(self._copies())
        left = [name for name in self.sources if name not in self.used]
        unused = tuple(name for name in left if self._declared_unused(name))
        undeclared = sorted(set(left) - set(unused))
        missing = [(p.name, name) for p in productions for name in p.value.sources() if name not in self.sources]
        self._explain(missing, undeclared)
        self._check_shapes(productions)
        return WeightPlan(tuple(self._in_checkpoint_order(productions)), unused, copies)

    def _productions(self) -> list[Production]:
        """Every parameter once: from its rule, or from the tensor of its own name. Those with rules come first, as
        the public tool writes parameters that share a tensor."""
        made: dict[str, Production] = {}
        for rule in self._suffixed_rules():
            for production in rule.productions(self.parameters):
                if production.name in made:
                    self.problems.append(f"parameter {production.name} is produced by two rules")
                made[production.name] = production
        identity = {name: Production(name, shape, CheckpointTensor(name)) for name, shape in self.parameters.items()}
        ruled = {name: made[name] for name in self.parameters if name in made}
        return list((ruled | {n: p for n, p in identity.items() if n not in made} | made).values())

    def _suffixed_rules(self) -> Iterator[Rule]:
        for rule in self.map.rules:
            candidates = [rule, *(rule.with_suffix(suffix) for suffix in SUFFIXES)]
            fitting = [c for c in candidates if all(target in self.parameters for target in c.targets)]
            if not fitting:
                self.problems.append(f"rule for {', '.join(rule.targets)}: the model has no such parameter")
            yield from fitting

    def _locate(self, production: Production) -> Production:
        """The production over the names that this checkpoint uses (with or without a prefix)."""
        value = production.value.map_names(self._spelling)
        value = value.among(self.sources) if isinstance(value, Either) else value
        located = Production(production.name, production.shape, value)
        self.used.update(located.value.sources())
        return located

    def _spelling(self, name: str) -> str:
        for spelling in self._spellings(name):
            if spelling in self.sources:
                return spelling
        return name

    def _spellings(self, name: str) -> list[str]:
        """The name and its other forms in checkpoints of the model."""
        found = [name]
        for ours, other in self.map.prefixes:
            for old, new in ((ours, other), (other, ours)):
                found += [new + n.removeprefix(old) for n in found if n.startswith(old)]
        return list(dict.fromkeys(found))

    def _copies(self) -> Iterator[tuple[str, str]]:
        for name, to in self.map.tied_names:
            copy, original = self._full(name), self._full(to) if to else None
            if copy in self.sources and copy not in self.used:
                self.used.add(copy)
                if original is not None:
                    yield copy, original

    def _full(self, name: str) -> str:
        return next((s for s in (self._spelling(name), self._spelling(f"{name}.weight")) if s in self.sources), name)

    def _declared_unused(self, name: str) -> bool:
        if self.map.parts and not any(fnmatchcase(name, pattern) for pattern in self.map.parts):
            return True
        return any(fnmatchcase(n, pattern) for n in self._spellings(name) for pattern in self.map.unused_patterns)

    def _explain(self, missing: list[tuple[str, str]], undeclared: list[str]) -> None:
        """Raise one error that lists missing and left-over tensors, each with its near matches."""
        names = [source for _, source in missing]
        wanted = [
            f"parameter {name} needs {source}, which the checkpoint lacks{_near(source, undeclared)}"
            for name, source in missing[:SHOWN_PROBLEMS]
        ]
        left = [
            f"tensor {name} {list(self.sources[name])} of the checkpoint has no use in the model{_near(name, names)}"
            for name in undeclared[:SHOWN_PROBLEMS]
        ]
        where = [*self.problems, *_capped(wanted, len(missing)), *_capped(left, len(undeclared))]
        if where:
            raise WeightMapError(
                f"the checkpoint does not fit the model: got {len(missing)} missing and {len(undeclared)} left-over "
                "tensors; expected every parameter to be produced and every tensor to be used",
                where=where,
                hint="check that config.json belongs to these weights (model_type, biases, layers, tied embeddings)",
            )

    def _check_shapes(self, productions: list[Production]) -> None:
        wrong = [line for production in productions if (line := self._shape_problem(production))]
        if not wrong:
            wrong = list(self._partial_splits(productions))
        if wrong:
            raise WeightMapError(
                f"{len(wrong)} tensors do not have the shape that the config gives",
                where=_capped(wrong[:SHOWN_PROBLEMS], len(wrong)),
                hint="check that config.json belongs to these weights (sizes, head_dim, vocab_size)",
            )

    def _shape_problem(self, production: Production) -> str | None:
        try:
            shape = production.value.shape(self.sources)
        except MLCError as error:
            return f"{production.name}: {error.message}"
        if shape == production.shape:
            return None
        expected = list(production.shape)
        return f"{production.name} has shape {list(shape)}; the config gives {expected} ({production.value})"

    def _partial_splits(self, productions: list[Production]) -> Iterator[str]:
        """Errors for sources whose last elements are not read by any slice."""
        ends: dict[tuple[Expr, int], int] = {}
        for production in productions:
            if isinstance(cut := production.value, Slice):
                key = (cut.parts[0], cut.axis)
                ends[key] = max(ends.get(key, 0), cut.stop)
        for (source, axis), end in ends.items():
            total = source.shape(self.sources)[axis]
            if end != total:
                yield f"split of {source}: the targets take {end} of {total} along axis {axis}"

    def _in_checkpoint_order(self, productions: list[Production]) -> list[Production]:
        position = {name: index for index, name in enumerate(self.sources)}
        return sorted(productions, key=lambda p: min(position[name] for name in p.value.sources()))


def _near(name: str, candidates: Sequence[str]) -> str:
    close = get_close_matches(name, candidates[:NEAR_MATCH_POOL], n=2, cutoff=0.8)
    return f" (near: {', '.join(close)})" if close else ""


def _capped(lines: list[str], total: int) -> list[str]:
    return lines if total <= len(lines) else [*lines, f"… and {total - len(lines)} more"]
