"""What failures and slow GPUs cost a training run: closed forms (Young, Daly), and the same by simulated events.

A run computes for an interval, writes a checkpoint, and so on. A failure, whose times are exponentially distributed,
loses all since the last checkpoint; a restart follows, which may fail, too. Times are in seconds.

Young 1974, "A first order approximation to the optimum checkpoint interval"; Daly 2006, "A higher order estimate of the
optimum checkpoint interval for restart dumps". Both take it that all GPUs wait while a checkpoint is written.
"""

from dataclasses import dataclass, replace
from math import exp, expm1, fsum, log1p, sqrt
from random import Random

from ptdp_core.simulator import Cluster, Estimate
from ptdp_core.simulator.costs import cost_model
from ptdp_core.simulator.executor import PICOSECONDS
from ptdp_core.simulator.simulate import pipeline_costs
from ptdp_core.simulator.steady_state import flush
from reproduce.planning.time_shares import time_shares

PASSES = ("forward", "recompute", "backward", "embedding_and_logits")  # phases in which a pipeline rank computes


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
        """The interval with the largest effective share: where (interval + C)/M + ln(1 - interval/M) = 0."""
        low, high = 0.0, self.mtbf
        for _ in range(100):
            middle = (low + high) / 2
            if middle < self.mtbf and (middle + self.checkpoint) / self.mtbf + log1p(-middle / self.mtbf) > 0:
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


def straggler_slowdowns(estimate: Estimate, cluster: Cluster, slower: float) -> list[float]:
    """By which share an iteration takes longer if one GPU computes slower by a share: by the GPU's pipeline rank.

    Its tensor group waits for it in every layer, so that all passes of its pipeline rank are slower, and every replica
    waits for its pipeline at the reduction. The schedule is executed with that rank's computing slower; a rank that
    waits anyway, for the stage with the logits, hides some of it. A slow node is the same if it holds one pipeline
    rank.
    """
    parallel, shares = estimate.config.parallel, time_shares(estimate, cluster)
    computing = shares["computation"] + shares["recomputation"]
    if parallel.p == 1:
        return [slower * computing / estimate.iteration_time]
    factor = 1 + slower * computing / fsum(estimate.phase_times[name] for name in PASSES)
    model = cost_model(cluster, parallel.n)
    costs = pipeline_costs(model, estimate.config, model.stages(estimate.config))

    def flush_time(slow_rank: int | None) -> int:
        held = {stage for stage in range(len(costs.forward)) if parallel.placement.ranks[stage] == slow_rank}
        times = (
            [round(time * factor) if stage in held else time for stage, time in enumerate(of_stages)]
            for of_stages in (costs.forward, costs.backward, costs.weight_gradient)
        )
        forward, backward, weight_gradient = times
        changed = replace(costs, forward=forward, backward=backward, weight_gradient=weight_gradient)
        return max(flush(parallel.schedule, parallel.p, parallel.m, parallel.v, changed).ends)

    usual = flush_time(None)
    return [(flush_time(rank) - usual) / PICOSECONDS / estimate.iteration_time for rank in range(parallel.p)]
