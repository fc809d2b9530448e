"""``benchmarks/peers``: rejected measurements, computed figures and shares, and the protocol of its workers."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from peers import figures, processor
from peers.catalog import ENGINES, SCHEMES, Variant
from peers.cells import Cell, Kind, grid
from peers.client import Worker
from peers.figures import Limits, figure
from peers.processor import Reading
from peers.report import markdown, ratio
from peers.results import About, Figure, Group, Measured, Result, load, load_or_new, save
from peers.sampling import EngineError, Sample, Settings, Taken, take
from peers.shapes import ROOM, SHAPES, Shape

from mlc_evaluation import machine_limits

SETTINGS = Settings(repeats=3, tries=5, steps=10, patience=0)
PREFILL, DECODE = Cell(Kind.PREFILL, 100), Cell(Kind.DECODE, 100, batch=2)
SMALL = Shape(hidden=8, intermediate=16, layers=2, heads=4, kv_heads=2, vocabulary=32, tied=False)
HALF = Variant("f16", 16, 2)


class Scripted:
    """An engine whose samples are given. calls: what it was asked for."""

    def __init__(self, *samples: Sample, fails_at: int = -1):
        self._samples, self._fails_at = iter(samples), fails_at
        self.calls: list[str] = []

    def begin(self, tokens: int, batch: int, seed: int) -> Sample:
        return self._next(f"begin {tokens} {batch}", warm_up=seed == 0)

    def step(self, count: int) -> Sample:
        return self._next(f"step {count}", warm_up="step 10" not in self.calls)

    def end(self) -> None:
        self.calls.append("end")

    def _next(self, call: str, warm_up: bool) -> Sample:
        if len(self.calls) == self._fails_at:
            raise EngineError("no memory")
        self.calls.append(call)
        return Sample(99, 0) if warm_up else next(self._samples)


def quiet(*seconds: float) -> list[Sample]:
    return [Sample(s, 0.05) for s in seconds]


def test_medians_are_of_quiet_samples() -> None:
    engine = Scripted(Sample(50, 0.5), *quiet(3, 1, 2))
    taken = take(PREFILL, {"a": engine}, SETTINGS)["a"]
    assert taken.quiet == [3, 1, 2]
    assert taken.median == 2
    assert engine.calls == ["begin 100 1", "end"] * 5  # a warm-up, a disturbed one, three quiet ones


def test_engines_take_turns_and_decoding_goes_on() -> None:
    engines = {"a": Scripted(*quiet(1, 2, 3)), "b": Scripted(*quiet(4, 5, 6))}
    taken = take(DECODE, engines, SETTINGS)
    assert [t.median for t in taken.values()] == [2, 5]
    assert engines["a"].calls == ["begin 100 2", "step 10", "step 10", "step 10", "step 10", "end"]


def test_an_engine_that_fails_leaves_the_others_alone() -> None:
    taken = take(DECODE, {"a": Scripted(fails_at=2), "b": Scripted(*quiet(4, 5, 6))}, SETTINGS)
    assert (taken["a"].failed, taken["a"].median, taken["b"].median) == ("no memory", None, 5)


def test_without_quiet_samples_there_is_no_figure() -> None:
    taken = Taken(SETTINGS, [Sample(1, 0.5)] * 4 + quiet(1))
    assert taken.is_done
    found = figure(PREFILL, taken, SMALL, HALF, Limits(1, 1))
    assert (found.tokens_per_s, found.rejected) == (None, "1 of 5 samples were quiet")


def test_slow_engines_are_sampled_less() -> None:
    taken = Taken(replace(SETTINGS, repeats=5, seconds=60), quiet(25, 25, 25))
    assert taken.is_done
    assert not Taken(replace(SETTINGS, repeats=5, seconds=60), quiet(1, 1, 1)).is_done


def test_steps_have_room_after_the_longest_prompt() -> None:
    with pytest.raises(ValueError, match=f"at most {ROOM} tokens"):
        Settings(tries=100, steps=32)


def test_work_of_a_shape() -> None:
    linear = 2 * 8 * (2 * 8 + 2 * 4 + 3 * 16)  # layers, inputs, outputs of query and output, key and value, the MLP
    assert SMALL.linear == linear
    assert SMALL.prefill_flop(10) == 2 * (linear * 10 + 32 * 8) + 2 * 2 * 8 * 2 * (10 * 11 // 2)
    assert SMALL.step_bytes(4.5, 2, batch=3, depth=10) == (linear + 256) * 4.5 / 8 + 3 * 10 * 2 * 2 * 4 * 2
    assert SHAPES["llama-1.1b"].linear + 2 * SHAPES["llama-1.1b"].head == pytest.approx(1.17e9, rel=0.01)


def test_figures_and_shares() -> None:
    prefill = figure(PREFILL, Taken(SETTINGS, quiet(2, 2, 2)), SMALL, HALF, Limits(1e3, 1e6))
    assert prefill.tokens_per_s == 50
    assert prefill.share == SMALL.prefill_flop(100) / 2e6
    decode = figure(DECODE, Taken(SETTINGS, quiet(2, 2, 2)), SMALL, HALF, Limits(1e6, 1e3))
    assert decode.tokens_per_s == 10  # 10 steps of 2 sequences in 2 s
    assert decode.share == SMALL.step_bytes(16, 2, 2, 100) * 10 / 2e6


def test_more_than_the_machine_can_do_is_rejected() -> None:
    found = figure(DECODE, Taken(SETTINGS, quiet(2, 2, 2)), SMALL, HALF, Limits(1e3, 1e3))
    assert found.tokens_per_s is None
    assert found.rejected is not None and found.rejected.endswith("of the machine's limit")


def test_the_limit_of_quantized_weights_is_float32_where_no_8_bit_products_are(monkeypatch: pytest.MonkeyPatch):
    found = {"limits": machine_limits.Limits(1, 5.0, 7.0), "int8": 9.0}
    monkeypatch.setattr(figures, "measure_limits", lambda threads: found["limits"])
    monkeypatch.setattr(figures, "measure_int8", lambda threads: found["int8"])
    assert [Limits.measure(1, scheme) for scheme in ("q4", "f16")] == [Limits(5.0, 9.0), Limits(5.0, 7.0)]
    found["int8"] = None
    assert Limits.measure(1, "q4") == Limits(5.0, 7.0)


def test_processors_that_others_use() -> None:
    assert processor.busy_seconds("cpu  100 200 300 9999 9999 1 2 3 50 60") * processor.TICKS_PER_S == 606
    fields = ["S", *"0" * 10, "150", "50", "7"]
    assert processor.process_seconds(f"7 (a b) c) {' '.join(fields)}") * processor.TICKS_PER_S == 200
    error = 2 / processor.TICKS_PER_S
    assert processor.others(Reading(0, 0, 0), Reading(2, 3, 2)) == pytest.approx((1 - error) / 2)
    assert processor.others(Reading(0, 0, 0), Reading(2, 2, 2)) == 0


def test_grid_has_each_cell_once() -> None:
    cells = grid([512], [0, 128], [1, 4], batch_depth=128)
    assert [cell.title for cell in cells] == ["prefill 512", "decode at 0", "decode at 128", "decode at 128, batch 4"]
    assert cells[1].prompt == 1


def group(model: str = "smollm2", **rates: float | None) -> Group:
    figures = {name: Figure(rate, 0.5, None if rate else "failed", [1.0], [0.0]) for name, rate in rates.items()}
    abouts = {name: About("files", "", "1.0", "native", 0.5, 16) for name in rates}
    return Group(model, "q4", 1, 3e10, 1e12, 0.1, 32, abouts, [Measured(PREFILL, figures)])


def test_ratio_is_to_the_best_peer() -> None:
    assert ratio(group(mlc=30.0, a=10.0, b=20.0).cells[0]) == 1.5
    assert ratio(group(mlc=30.0, a=10.0, b=None).cells[0]) == 3
    assert ratio(group(mlc=None, a=10.0).cells[0]) is None


def test_results_are_kept_and_shown(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    first = Result("this machine", [group(mlc=30.0, a=10.0), group("llama-1.1b", mlc=3.0, a=None)])
    save(first, path)
    assert load(path) == first
    assert load_or_new(path, "another").groups == []
    second = load_or_new(path, "this machine").with_group(group(mlc=60.0, a=10.0))
    assert [g.model for g in second.groups] == ["llama-1.1b", "smollm2"]
    assert "| prefill 100 | 60.0 (50%) | 10.0 (50%) | 6.00 |" in markdown(second)
    assert "| prefill 100 | 3.0 (50%) | rejected: failed | – |" in markdown(second)


def test_every_engine_has_a_worker_and_known_schemes() -> None:
    workers = Path(processor.__file__).with_name("workers")
    for engine in ENGINES.values():
        assert (workers / f"{engine.worker}.py").is_file()
        assert set(engine.variants) <= set(SCHEMES)


COUNTING = """
import sys
from pathlib import Path
from peers.workers.serve import serve
class Engine:
    version, build = "1", "none"
    def __init__(self, path, threads): print("noise of a library"); self.threads = threads
    def begin(self, prompts): self.last = [sum(p) for p in prompts]; return self.last
    def step(self, count):
        if count > 5: raise MemoryError("too many")
        return [self.last] * count
    def end(self): pass
serve(Engine)
"""


def test_a_worker_answers_in_lines() -> None:
    requests = [{"begin": {"ids": [[1, 2], [3, 4]]}}, {"step": 2}, {"step": 6}, {"end": True}]
    begins = [{"begin": {"tokens": 9, "batch": 2, "seed": seed}} for seed in (1, 1, 2)]
    done = subprocess.run(
        [sys.executable, "-c", COUNTING, "files", "1"],
        input="".join(json.dumps(r) + "\n" for r in requests + begins),
        env={"PYTHONPATH": str(Path(processor.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    about, *answers = map(json.loads, done.stdout.splitlines())
    assert about["version"] == "1"
    assert answers[0]["tokens"] == [[3, 7]]
    assert answers[1]["tokens"] == [[3, 7], [3, 7]]
    assert answers[2] == {"error": "MemoryError: too many"}
    first, again, other = (a["tokens"] for a in answers[4:])
    assert first == again != other


def test_a_worker_that_ends_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="the worker has ended"):
        Worker(Path(sys.executable), "missing", tmp_path, 1, tmp_path / "log")
