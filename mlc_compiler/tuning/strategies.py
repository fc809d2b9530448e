"""Search strategies, which propose the next candidates given the trials so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from random import Random

from mlc_errors import UsageError

from ..tir.schedule.sampling import perfect_tilings
from ..tir.schedule.trace import SAMPLES, Step
from .cost_model import CostModel
from .estimate import Estimate, estimate
from .guided import Decision
from .measure import Trial, layouts_of
from .space import Candidate, Space
from .task import Task

MISSES = 32  # consecutive draws without a new candidate after which a space counts as exhausted
INNERMOST = 16  # default ``max_innermost_factor`` of ``sample_perfect_tile``


@dataclass
class History:
    """The trials of a task, and the search space."""

    task: Task
    space: Space
    random: Random
    by_key: dict[str, Trial] = field(default_factory=dict)
    _estimates: dict[str, Estimate] = field(default_factory=dict)

    def add(self, trial: Trial) -> None:
        """Add a trial; it replaces an earlier one of the same candidate."""
        self.by_key[trial.candidate.key] = trial

    @property
    def trials(self) -> list[Trial]:
        return list(self.by_key.values())

    @property
    def timed(self) -> list[tuple[float, Candidate]]:
        """The successful trials, fastest first."""
        found = [(t.seconds, t.candidate) for t in self.trials if t.seconds is not None]
        return sorted(found, key=lambda pair: pair[0])

    def candidate(self, decisions: Sequence[Decision] = ()) -> Candidate | None:
        """The candidate with the given decisions; None if it is invalid, cannot run, or was already tried."""
        made = self.space.candidate(self.task, self.random.randrange(1 << 30), decisions)
        if made is None or made.key in self.by_key or not self.has_layouts(made) or self.estimate(made).problem:
            return None
        return made

    def has_layouts(self, candidate: Candidate) -> bool:
        """Whether a candidate reads its parameters in layouts that the task allows."""
        return not self.task.keeps_layouts or layouts_of(candidate.func) == self._layouts

    @cached_property
    def _layouts(self) -> dict[int, str]:
        """The layouts of the default schedule; none without one."""
        default = self.space.default(self.task)
        return {} if default is None else layouts_of(default.func)

    def drawn(self, count: int, draw: Callable[[], Candidate | None]) -> list[Candidate]:
        """Draw up to ``count`` distinct candidates; fewer when many consecutive draws give no new one."""
        found: dict[str, Candidate] = {}
        misses = 0
        while len(found) < count and misses < MISSES:
            made = draw()
            misses = misses + 1 if made is None or made.key in found else 0
            if made is not None:
                found[made.key] = made
        return list(found.values())

    def estimate(self, candidate: Candidate) -> Estimate:
        """The cost estimate of a candidate, cached because the cost model is fitted anew for each proposal."""
        if candidate.key not in self._estimates:
            self._estimates[candidate.key] = estimate(candidate.func, self.task.target, self.task.sizes)
        return self._estimates[candidate.key]


class Strategy(ABC):
    """Base class of strategies, which propose untried candidates of a task."""

    @abstractmethod
    def propose(self, history: History, count: int) -> list[Candidate]:
        """Return at most ``count`` candidates, the most promising first; none when none is left."""


class RandomSearch(Strategy):
    """Draws every candidate at random."""

    def propose(self, history: History, count: int) -> list[Candidate]:
        return history.drawn(count, history.candidate)


@dataclass
class Evolution(Strategy):
    """Evolutionary search: mutates and crosses the decisions of the fastest candidates, ranked by a cost model.

    population: number of fastest candidates used as parents. mutated, crossed: fractions of children that differ in one
    decision from one parent, and that combine two parents; the others, and the fraction ``unranked`` of the proposals,
    are random. pool: number of children generated per proposed candidate.
    """

    population: int = 8
    mutated: float = 0.6
    crossed: float = 0.2
    unranked: float = 0.1
    pool: int = 5
    model: CostModel = field(default_factory=CostModel)

    def propose(self, history: History, count: int) -> list[Candidate]:
        timed = history.timed
        self.model.fit([history.estimate(c).features for _, c in timed], [seconds for seconds, _ in timed])
        parents = [c for _, c in timed[: self.population] if c.decisions]
        pool = history.drawn(count * self.pool, lambda: self._child(history, parents))
        ranked = self._ranked(history, pool)
        random = [c for c in ranked[count:] if history.random.random() < self.unranked]
        kept = ranked[: max(1, count - len(random))]
        return (kept + random)[:count]

    def _child(self, history: History, parents: Sequence[Candidate]) -> Candidate | None:
        kind = history.random.random()
        if not parents or kind > self.mutated + self.crossed:
            return history.candidate()
        parent = history.random.choice(parents)
        if kind < self.mutated:
            return history.candidate(mutated(parent, history.random))
        return history.candidate(crossed(parent, history.random.choice(parents), history.random))

    def _ranked(self, history: History, pool: Sequence[Candidate]) -> list[Candidate]:
        estimates = [history.estimate(c) for c in pool]
        if not pool or not self.model.is_fitted:
            costs = [e.seconds for e in estimates]
        else:
            costs = list(self.model.predict([e.features for e in estimates]))
        return [pool[i] for i in sorted(range(len(pool)), key=costs.__getitem__)]


@dataclass
class Beam(Strategy):
    """Beam search: tries all candidates that differ in one decision from one of the fastest few.

    width: number of fastest candidates to expand. slack: candidates whose estimate exceeds the lowest by this factor
    are never tried. When no candidate is left, it draws at random.
    """

    width: int = 3
    slack: float = 4.0

    def propose(self, history: History, count: int) -> list[Candidate]:
        found: dict[str, Candidate] = {}
        for _, best in history.timed[: self.width]:
            for decisions in neighbours(best):
                made = history.candidate(decisions)
                if made is not None:
                    found[made.key] = made
        found |= {c.key: c for c in history.drawn(count, history.candidate)} if not found else {}
        costs = {key: history.estimate(c).seconds for key, c in found.items()}
        least = min([*costs.values(), *(history.estimate(c).seconds for _, c in history.timed[:1])], default=0.0)
        kept = [key for key in found if costs[key] <= self.slack * least]
        history.random.shuffle(kept)  # equal costs in any order
        kept.sort(key=costs.__getitem__)
        return [found[key] for key in kept[:count]]


STRATEGIES: dict[str, Callable[[], Strategy]] = {"random": RandomSearch, "evolution": Evolution, "beam": Beam}


def strategy_named(name: str) -> Strategy:
    """Create the strategy of that name. Raises UsageError for an unknown name."""
    if name not in STRATEGIES:
        raise UsageError(f"strategy: got {name!r}; expected one of {', '.join(STRATEGIES)}")
    return STRATEGIES[name]()


# -- decisions ----------------------------------------------------------------------------------------------------


def alternatives(step: Step) -> list[Decision]:
    """All possible decisions of a sampling step."""
    if step.name == "sample_categorical":
        return list(range(len(step.keywords["candidates"])))
    if step.options:
        return list(step.options)
    decision, innermost = step.keywords["decision"], step.keywords.get("max_innermost_factor", INNERMOST)
    return [list(factors) for factors in perfect_tilings(prod(decision), len(decision), innermost)]


def mutated(candidate: Candidate, random: Random) -> list[Decision]:
    """The decisions with one of them replaced by another; later ones are kept as far as they remain valid."""
    steps = _samples(candidate)
    open_ = [i for i, step in enumerate(steps) if len(alternatives(step)) > 1]
    decisions = list(candidate.decisions)
    if open_:
        at = random.choice(open_)
        decisions[at] = random.choice([d for d in alternatives(steps[at]) if d != decisions[at]])
    return decisions


def crossed(a: Candidate, b: Candidate, random: Random) -> list[Decision]:
    """Choose each decision from one of two candidates, as far as both have it."""
    pairs = zip(a.decisions, b.decisions)
    return [random.choice(pair) for pair in pairs]


def neighbours(candidate: Candidate) -> Iterator[list[Decision]]:
    """Yield the decisions with each one replaced by each of its alternatives."""
    decisions = list(candidate.decisions)
    for i, step in enumerate(_samples(candidate)):
        for other in alternatives(step):
            if other != decisions[i]:
                yield [*decisions[:i], other, *decisions[i + 1 :]]


def _samples(candidate: Candidate) -> list[Step]:
    return [step for step in candidate.trace if step.name in SAMPLES]
