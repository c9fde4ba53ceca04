"""The guard decides from a canary, run between the slices of a round, whether the machine was disturbed.

It never sees the measured times, so that redoing a disturbed round cannot bias the result. The canary is a fixed matrix
product on the core on which everything is measured, and is read in two ways. The time of its fastest part follows the
speed of the core, as the measured times do. The time that it waited for the core shows other programs, even if these
have been running all along.
"""

import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from benchmarks.harness.timing import DISTURBED

PARTS, PRODUCTS, PAUSE_S = 3, 4, 0.005
SHAPE = (200, 64, 64)  # a stack of products too small for the BLAS to use threads of its own: about 3 ms
QUIET_PERCENTILE = 25  # of the session's canaries: stands for a quiet machine


@dataclass(frozen=True)
class Reading:
    """One canary: the seconds of its fastest part, and its elapsed time over its CPU time (1: it never waited)."""

    seconds: float
    waited: float


def disturbed(readings: Iterable[Reading], of_session: Iterable[Reading]) -> bool:
    """Whether each of these readings was 10% slower than the session's quiet time, or waited for 10% of its CPU time.

    One disturbed reading is not enough: base and head take turns, so a short disturbance hits both alike. Only a
    disturbance that lasts for the whole round counts.
    """
    quiet_s = float(np.percentile([reading.seconds for reading in of_session], QUIET_PERCENTILE))
    return all(reading.seconds > DISTURBED * quiet_s or reading.waited > DISTURBED for reading in readings)


def measured_core() -> int:
    """The core on which a session measures: the last one that this process may use."""
    return max(os.sched_getaffinity(0))


def canary() -> Reading:
    """Run the canary, about 0.05 s, in a new thread, so that only that thread is bound to the core."""

    def run() -> Reading:
        os.sched_setaffinity(0, {measured_core()})
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
        return Reading(min(parts), sum(parts) / on_core)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()
