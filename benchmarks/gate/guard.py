"""The guard: a canary that runs before and after every process, and never sees what these measured.

The canary is a fixed matrix product on two threads, as many as a benchmark has ranks, and has two readings: the
fastest of its parts, which follows the speed of the cores as the times of the launches do; and how long it waited for
a core, which tells of other programs even if they have been running all the time.
"""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from benchmarks.timing import DISTURBED

THREADS, PARTS, PRODUCTS, PAUSE_S = 2, 10, 4, 0.005
SHAPE = (200, 64, 64)  # a stack of products too small for the BLAS to use threads of its own: 2.5 ms
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
        """Whether one of these was 10% slower than the session's 25th percentile, or waited 10% of its time."""
        limit = DISTURBED * self.quiet_s
        return any(reading.seconds > limit or reading.waited > DISTURBED for reading in readings)

    @property
    def quiet_s(self) -> float:
        """The 25th percentile of the session's canaries, in seconds."""
        return float(np.percentile([reading.seconds for reading in self.readings], QUARTER))


def canary() -> Reading:
    """Run the canary, for about 0.15 s."""
    started = threading.Barrier(THREADS)
    found: list[Reading] = []

    def run() -> None:
        stack, factor = np.full(SHAPE, 0.5), np.full(SHAPE[1:], 0.5)
        product = stack @ factor
        started.wait()
        parts, on_core = [], 0.0
        for _ in range(PARTS):
            start, core = time.perf_counter(), time.thread_time()
            for _ in range(PRODUCTS):
                np.matmul(stack, factor, out=product)
            parts.append(time.perf_counter() - start)
            on_core += time.thread_time() - core
            time.sleep(PAUSE_S)
        found.append(Reading(min(parts), sum(parts) / on_core))

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Reading(max(reading.seconds for reading in found), max(reading.waited for reading in found))
