"""The simulator's result: one training iteration, in seconds, bytes and FLOP/s."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ptdp_core.config import TrainingConfig
from ptdp_core.formulas import flops_per_iteration, model_flops_per_iteration
from ptdp_core.schedules import TimelineEvent

PHASES = (
    "forward",
    "recompute",
    "backward",
    "embedding_and_logits",
    "pipeline_communication",
    "bubble",
    "data_parallel",
    "optimizer",
    "host",
)
# The bubble's causes, in the order in which they are taken away (`Estimate.bubble_times`).
BUBBLE_CAUSES = ("fill_and_drain", "stage_imbalance", "message_waiting")


@dataclass(frozen=True)
class Estimate:
    """One simulated training iteration.

    - `peak_flops`: of one GPU of the cluster, for the type of its elements
    - `iteration_time`: from the first forward pass to the end of the optimizer step
    - `phase_times`: the iteration split into `PHASES`, mean over pipeline ranks; they add up to `iteration_time`.
      `pipeline_communication` is exposed time only; `bubble` is all waiting of a rank
    - `bubble_fraction`: waiting over compute, mean over ranks: comparable with (p-1)/(vm) (Section 2.2)
    - `bubble_times`: the seconds of the phase `bubble` by `BUBBLE_CAUSES`, which add up to it; only if asked for.
      `fill_and_drain` is the waiting if all stages took their mean time and messages none: (p-1)/(vm) of the passes'
      time for the paper's schedules (Section 2.2). `stage_imbalance` is what the stages' own times (the logits, the
      embedding, uneven reductions after the flush) add to that, `message_waiting` what messages that take time add to
      both. A cause is negative where it shortens the waiting: a rank that waits for the slowest stage anyway spends
      part of that time in its own messages, which are `pipeline_communication`
    - `peak_memory`: of the fullest GPU; `memory_bytes` splits it
    - `traffic`: bytes one GPU sends in an iteration, by use ('pipeline', 'tensor', 'data', 'embedding', and with
      context parallelism 'context'), the largest over pipeline ranks
    - `timeline`: per pipeline rank what it does when, in seconds from the start of the iteration; only if asked for
    """

    config: TrainingConfig
    cluster: str
    peak_flops: float
    iteration_time: float
    phase_times: Mapping[str, float]
    bubble_fraction: float
    peak_memory: int
    memory_bytes: Mapping[str, int]
    traffic: Mapping[str, int]
    fits: bool
    bubble_times: Mapping[str, float] = field(default_factory=dict)
    timeline: tuple[tuple[TimelineEvent[float], ...], ...] = field(default=(), repr=False)

    @property
    def idle_fraction(self) -> float:
        """The share of the iteration that a pipeline rank waits, mean over ranks; rounding makes it no less than 0."""
        return max(0.0, self.phase_times["bubble"]) / self.iteration_time

    @property
    def model_throughput_per_gpu(self) -> float:
        """FLOP/s per GPU of the model's own passes, one forward and one backward, whatever is recomputed."""
        return self._model_flops_per_gpu / self.iteration_time

    @property
    def model_flops_utilization(self) -> float:
        """MFU: `model_throughput_per_gpu` over the peak of a GPU."""
        return self._model_flops_per_gpu / self.peak_flops / self.iteration_time

    @property
    def _model_flops_per_gpu(self) -> float:
        return model_flops_per_iteration(self.config.model, self.config.parallel.B) / self.config.parallel.n

    @property
    def throughput_per_gpu(self) -> float:
        """FLOP/s per GPU by eq. (3), the paper's count: the recomputed pass is in it whether or not there is one."""
        parallel = self.config.parallel
        return flops_per_iteration(self.config.model, parallel.B) / (self.iteration_time * parallel.n)

    @property
    def sequences_per_s(self) -> float:
        """Sequences per second of the whole job: B over the iteration time."""
        return self.config.parallel.B / self.iteration_time
