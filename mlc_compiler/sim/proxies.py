"""``fence.proxy.async`` (PTX ISA 8.3): needed between threads' stores and asynchronous reads of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim.access import Part
from mlc_compiler.sim.errors import Fault
from mlc_compiler.sim.races import CLOCK_MASK, THREAD_BITS, THREAD_MASK
from mlc_compiler.sim.threads import Threads

Array = npt.NDArray[Any]
KEY = "proxies"


class Proxies:
    """By block and warp: the clock up to which the warp's stores precede a proxy fence, its own or a later one."""

    def __init__(self, m: Threads):
        self.fenced = np.zeros((m.blocks, m.warps_per_block), np.int32)

    def stuck(self, m: Threads) -> Fault | None:
        return None


def proxies_of(m: Threads) -> Proxies:
    if KEY not in m.devices:
        m.devices[KEY] = Proxies(m)
    found: Proxies = m.devices[KEY]
    return found


def fence_proxy(m: Threads) -> None:
    warps = np.unique(m.lanes() >> 5)
    np.maximum.at(proxies_of(m).fenced, warps // m.warps_per_block, m.clocks.release(warps))


def check_fenced(m: Threads, part: Part, width: int) -> None:
    """Raise Fault when an asynchronous instruction reads shared memory that threads stored without a proxy fence."""
    if part.shadow is None:
        return
    codes = part.shadow.stored_by_threads(part.offsets, width)
    fenced = proxies_of(m).fenced[m.lane_block[part.lanes]]
    clocks = np.take_along_axis(fenced, (codes & THREAD_MASK) >> 5, axis=1)
    late = ((codes >> THREAD_BITS) & CLOCK_MASK) > clocks
    if late.any():
        row, column = (int(i) for i in np.argwhere(late)[0])
        lane = int(part.lanes[row])
        writer = m.name_of(int(m.block_number[lane]), int(codes[row, column]) & THREAD_MASK)
        raise Fault(
            f"missing fence.proxy.async: what {writer} stored to shared memory is read by an asynchronous instruction",
            lane,
            "put fence.proxy.async between the stores and the barrier that orders them before the instruction",
        )
