"""The simulated division of loops over threads."""

from __future__ import annotations

import pytest
from division import largest_share, pieces


@pytest.mark.parametrize("iterations", (1, 7, 64, 1536))
@pytest.mark.parametrize("threads", (1, 3, 16))
def test_every_iteration_is_in_one_piece(iterations: int, threads: int) -> None:
    assert sum(map(sum, pieces(iterations, threads, dynamic=False))) == iterations
    assert pieces(iterations, threads, dynamic=True) == [
        [1] * sum(part) for part in pieces(iterations, threads, dynamic=False)
    ]


def test_largest_share() -> None:
    assert largest_share(64, 16) == 1
    assert largest_share(18, 16) == pytest.approx(2 * 16 / 18)
    assert largest_share(3, 8) == pytest.approx(8 / 3)  # five threads have nothing to do
    assert largest_share(10, 2) == 1
