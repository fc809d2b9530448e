"""Contents of plots; matplotlib, which the tests do not depend on, is replaced by a recorder."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from mlc_cli.plots import check_plot, draw_errors, draw_gains
from mlc_errors import MLCError
from mlc_evaluation.comparison import Comparison, LayerError
from mlc_toolchain.tune import KernelGain


@pytest.fixture
def pyplot(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    package = MagicMock()
    package.pyplot.subplots.return_value = figure, axes = MagicMock(), MagicMock()
    axes.patches = [MagicMock(), MagicMock()]
    monkeypatch.setitem(sys.modules, "matplotlib", package)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", package.pyplot)
    package.figure, package.axes = figure, axes
    return package


def test_gains(pyplot: MagicMock, tmp_path: Path):
    kernels = [KernelGain("linear", 10, 12.5, 10.0, 1.25, 40, 2), KernelGain("rope", 5, None, None, None, 0, 0, "")]
    draw_gains(kernels, "cpu", tmp_path / "a.png")
    (places, values), names = pyplot.axes.barh.call_args
    assert (list(places), values, names) == ([0], [1.25], {"tick_label": ["linear"]})
    pyplot.figure.savefig.assert_called_once_with(tmp_path / "a.png")


def test_errors(pyplot: MagicMock, tmp_path: Path):
    layers = [LayerError("layers.0", 0, "a", 0.0, True), LayerError("layers.1", 1, "b", 3.0, False)]
    draw_errors(Comparison(5, 1e-3, layers), tmp_path / "a.png")
    (_, values), names = pyplot.axes.barh.call_args
    assert (values, names) == ([1e-8, 3.0], {"tick_label": ["layers.0", "layers.1"]})
    assert [bar.set_color.call_args.args for bar in pyplot.axes.patches] == [("tab:blue",), ("tab:red",)]
    pyplot.axes.set_xlim.assert_called_once_with(1e-8, 3.0)
    pyplot.axes.axvline.assert_called_once_with(1e-3, color="black", linewidth=0.8)


def test_files_are_checked_before_the_work(pyplot: MagicMock, tmp_path: Path):
    check_plot(tmp_path / "a.svg")
    with pytest.raises(MLCError, match="got 'no suffix'; expected one of .png, .svg, .pdf"):
        check_plot(tmp_path / "a")
    with pytest.raises(MLCError, match="cannot write the plot: No such file or directory"):
        check_plot(tmp_path / "nosuch" / "a.png")
