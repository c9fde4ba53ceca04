"""The guard: a canary that runs between the slices of a round, and never sees what these measured.

The canary is a fixed matrix product on the core on which everything is measured, and has two readings: the fastest of
its parts, which follows the speed of the core as the times of the launches do; and how long it waited for the core,
which tells of other programs even if they have been running all the time.
"""

import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from benchmarks.harness.timing import DISTURBED

PARTS, PRODUCTS, PAUSE_S = 3, 4, 0.005
SHAPE = (200, 64, 64)  # a stack of products too small for the BLAS to use threads of its own: about 3 ms
QUARTER = 25  # the percentile of the session's canaries that stands for a quiet machine


@dataclass(frozen=True)
class Reading:
    """One canary: seconds of its fastest part, and elapsed time over time on a core (1: it never waited)."""

    seconds: float
    waited: float


@dataclass
class Guard:
    """All canaries of a session."""

    readings: list[Reading] = field(default_factory=list)

    def disturbed(self, readings: Iterable[Reading]) -> bool:
        """Whether each of these was 10% slower than the session's 25th percentile, or waited 10% of its time.

        Each: base and head measure in turn, and see the same short disturbances. What matters is what lasts.
        """
        limit = DISTURBED * self.quiet_s
        return all(reading.seconds > limit or reading.waited > DISTURBED for reading in readings)

    @property
    def quiet_s(self) -> float:
        """The 25th percentile of the session's canaries, in seconds."""
        return float(np.percentile([reading.seconds for reading in self.readings], QUARTER))


def measured_core() -> int | None:
    """The core on which a session measures: the last one allowed here. None where cores cannot be chosen."""
    return max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def canary() -> Reading:
    """Run the canary, for about 0.05 s, in a thread of its own: only that one is bound to the core."""
    found: list[Reading] = []
    core = measured_core()

    def run() -> None:
        if core is not None:
            os.sched_setaffinity(0, {core})
        stack, factor = np.full(SHAPE, 0.5), np.full(SHAPE[1:], 0.5)
        product = stack @ factor
        parts, on_core = [], 0.0
        for _ in range(PARTS):
            start, before = time.perf_counter(), time.thread_time()
            for _ in range(PRODUCTS):
                np.matmul(stack, factor, out=product)
            parts.append(time.perf_counter() - start)
            on_core += time.thread_time() - before
            time.sleep(PAUSE_S)
        found.append(Reading(min(parts), sum(parts) / on_core))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]
