"""Noise of processes on shared machines, fixed before any outcome of the decision procedure was looked at.

The logarithm of a process's time is the sum of

    drift    a phase of the machine, common to neighbours: AR(1) over processes, stationary sd `drift`,
             correlation 0.9 from one to the next, so that a phase lasts about ten
    body     a process's own luck (memory layout, placement): normal, sd `body`
    spike    with probability `spikes` a neighbour that slows it throughout: exponential with mean `height`

The sizes are anchored outside the gate. On 7,158 recorded launches of identical code, two single runs compared with a
threshold of 10% gave false alarms in 11% of the comparisons on the quietest and 29% on the noisiest machine: `MODERATE`
and `HEAVY` do the same (a test checks it). That puts body and drift at 4% each, and at 8% and 10%.

Two worst cases: the canary is taken to see nothing of it, where in truth the guard helps; and the processes of a round
to run one after the other, where in truth they measure in turn, and share phases of the machine and its neighbours.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reproduce.annex.gate.session import ROUNDS

PERSISTENCE = 0.9


@dataclass(frozen=True)
class Noise:
    """Sizes as logarithms: 0.04 is about 4%."""

    body: float
    drift: float
    spikes: float
    height: float
    single_run_false_alarms: float

    def differences(
        self, trials: int, pairs: int, slowdown: float, rng: np.random.Generator, rounds: int = ROUNDS
    ) -> NDArray[np.float64]:
        """[trials, pairs, rounds]: log(head / base), head slower by the ratio `slowdown`, in random order."""
        processes = self._processes(trials, 2 * pairs * rounds, rng).reshape(trials, pairs, rounds, 2)
        second = processes[..., 1] - processes[..., 0]
        log_ratios: NDArray[np.float64] = np.where(rng.random(second.shape) < 0.5, second, -second) + np.log1p(slowdown)
        return log_ratios

    def _processes(self, trials: int, processes: int, rng: np.random.Generator) -> NDArray[np.float64]:
        drift = np.empty((trials, processes))
        drift[:, 0] = rng.normal(0, self.drift, trials)
        steps = rng.normal(0, self.drift * np.sqrt(1 - PERSISTENCE**2), (trials, processes))
        for i in range(1, processes):
            drift[:, i] = PERSISTENCE * drift[:, i - 1] + steps[:, i]
        spikes = rng.exponential(self.height, drift.shape) * (rng.random(drift.shape) < self.spikes)
        return drift + rng.normal(0, self.body, drift.shape) + spikes


MODERATE = Noise(body=0.04, drift=0.04, spikes=0.10, height=0.15, single_run_false_alarms=0.11)
HEAVY = Noise(body=0.08, drift=0.10, spikes=0.25, height=0.30, single_run_false_alarms=0.29)
