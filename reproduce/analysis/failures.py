"""What failures and slow GPUs cost a training run: closed forms (Young, Daly), and the same by simulated events.

A run computes for an interval, writes a checkpoint, and so on. A failure, whose times are exponentially distributed,
loses all since the last checkpoint; a restart follows, which may fail, too. Times are in seconds.

Young 1974, "A first order approximation to the optimum checkpoint interval"; Daly 2006, "A higher order estimate of the
optimum checkpoint interval for restart dumps". Both take it that all GPUs wait while a checkpoint is written.
"""

from dataclasses import dataclass
from math import exp, expm1, sqrt
from random import Random

from ptdp_core.simulator import Cluster, Estimate
from reproduce.analysis.planning.search import time_shares


@dataclass(frozen=True)
class Failures:
    """How often a job fails, and what that takes.

    - `mtbf`: mean time between failures of the whole job
    - `checkpoint`: how long all GPUs wait for a checkpoint
    - `restart`: from a failure until the job computes again, from its last checkpoint
    """

    mtbf: float
    checkpoint: float
    restart: float

    def effective_share(self, interval: float) -> float:
        """The share of the time that trains, with a checkpoint after each `interval` of computing.

        The expected time of an interval is M e^(R/M) (e^((interval + C)/M) - 1): Daly's complete model, exact for
        exponentially distributed failures.
        """
        mtbf = self.mtbf
        try:
            return interval / (mtbf * exp(self.restart / mtbf) * expm1((interval + self.checkpoint) / mtbf))
        except OverflowError:  # e^710: nothing gets done
            return 0.0

    @property
    def young_interval(self) -> float:
        """Young's interval, sqrt(2 C M): for checkpoints much shorter than the time between failures."""
        return sqrt(2 * self.checkpoint * self.mtbf)

    @property
    def daly_interval(self) -> float:
        """Daly's higher-order estimate of the best interval (2006, equation 37); M itself for C of 2 M or more."""
        if self.checkpoint >= 2 * self.mtbf:
            return self.mtbf
        part = sqrt(self.checkpoint / (2 * self.mtbf))
        return self.young_interval * (1 + part / 3 + part**2 / 9) - self.checkpoint

    @property
    def best_interval(self) -> float:
        """The interval with the largest effective share: where e^((interval + C)/M) (1 - interval/M) = 1."""
        low, high = 0.0, self.mtbf
        for _ in range(100):
            middle = (low + high) / 2
            if exp((middle + self.checkpoint) / self.mtbf) * (1 - middle / self.mtbf) > 1:
                low = middle
            else:
                high = middle
        return high

    def simulated_share(self, interval: float, checkpoints: int = 20_000, seed: int = 0) -> float:
        """The share of the time that trains, by events: so many checkpoints are reached, failures drawn at random."""
        draw = Random(seed)
        passed, next_failure = 0.0, draw.expovariate(1 / self.mtbf)
        for _ in range(checkpoints):
            remaining = interval + self.checkpoint
            while next_failure < passed + remaining:
                # What runs is lost, and what runs next is a restart and the interval once more.
                passed, next_failure = next_failure, next_failure + draw.expovariate(1 / self.mtbf)
                remaining = self.restart + interval + self.checkpoint
            passed += remaining
        return checkpoints * interval / passed


def straggler_slowdown(estimate: Estimate, cluster: Cluster, slower: float) -> float:
    """By how much an iteration takes longer, relative to it, if one GPU computes slower by this share.

    Its tensor group waits for it in every layer, its pipeline for its stage in every microbatch, and every replica for
    its pipeline: the iteration is longer by what the computing of one GPU is. So it is if it is a node that is slow.
    """
    shares = time_shares(estimate, cluster)
    return slower * (shares["computation"] + shares["recomputation"]) / estimate.iteration_time
