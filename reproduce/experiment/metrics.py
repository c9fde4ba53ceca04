"""The metrics: one row each, from which all follows that keeps, shows, bounds or describes one.

A row of `METRICS` decides what records and `--json` call a metric, in which base unit it is, how tables, figures and
the page show it, how a simulated iteration gives it, and which margin it has (`margins.py`). docs/metrics.md and the
schema of an estimate are tested against the table. What only one artifact has needs no row: a `Quantity` of its own.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ptdp_core.formulas import flops_per_iteration

if TYPE_CHECKING:
    from ptdp_core.simulator import Cluster, Estimate


GROUPED = ("cost", "gpu_time")


@dataclass(frozen=True)
class Quantity:
    """How a metric (in base unit `unit`) is shown: `value / factor` in `shown`, to `digits` decimals.

    `axis` is what the axis of a figure says, if not label and unit.
    """

    name: str
    label: str
    unit: str
    shown: str
    factor: float = 1.0
    digits: int = 1
    axis: str = ""

    @property
    def heading(self) -> str:
        """The label with its unit, as an axis or a table column says it."""
        return f"{self.label} ({self.shown})" if self.shown else self.label

    @property
    def form(self) -> str:
        """The format of a value in the shown unit: never '-0.0'; money and hours of GPUs in groups of three digits."""
        return f"z{',' * (self.name in GROUPED)}.{self.digits}f"

    def show(self, value: float) -> str:
        """`value` (base unit) as text in the shown unit, without the unit."""
        return format(value / self.factor, self.form)


@dataclass(frozen=True, kw_only=True)
class MetricDef(Quantity):
    """A metric that means the same wherever it stands.

    - `meaning`: what docs/metrics.md says of it
    - `of`: its value in a simulated iteration, in `unit`; None where the estimate was not asked for it. A metric
      without `of` comes from an artifact or from a clock
    - `answer`: `reproduce simulate`, `reproduce plan` and the page give it of every configuration
    - `if_shown`: a simulated point has it only where its artifact shows it; otherwise every one has it
    - `margin`: of which kind its margin is, a field of `margins.Margins`; None where nothing is published of it
    - `sign`: 1 if it grows with what the margin is of, -1 if it falls: a time with a throughput
    - `short`: what tables of one's own configurations call it, unit included; by default it is label and unit
    """

    meaning: str
    of: Callable[["Estimate", "Cluster"], float | None] | None = None
    answer: bool = False
    if_shown: bool = False
    margin: Literal["throughput", "ratio", "memory"] | None = None
    sign: Literal[1, -1] = 1
    short: str = ""

    def simulated(self, estimate: "Estimate", cluster: "Cluster") -> float | None:
        """Its value in a simulated iteration; None if that does not give it."""
        return self.of(estimate, cluster) if self.of else None


def _phase(phase: str, label: str, meaning: str) -> MetricDef:
    """The seconds of a phase of the iteration (`ptdp_core.simulator.estimate.PHASES`)."""
    name = f"{phase}_time"
    return MetricDef(name, label, "s", "s", 1, 2, meaning=meaning, of=lambda estimate, _: estimate.phase_times[phase])


def _bubble(cause: str, label: str, meaning: str) -> MetricDef:
    """The seconds of the bubble by a cause (`ptdp_core.simulator.estimate.BUBBLE_CAUSES`)."""
    name = f"bubble_{cause}_time"
    return MetricDef(
        name, label, "s", "s", 1, 2, meaning=meaning, of=lambda estimate, _: estimate.bubble_times.get(cause)
    )


def _traffic(use: str, meaning: str) -> MetricDef:
    """The bytes that a GPU sends for a use (`ptdp_core.simulator.Estimate.traffic`)."""
    label = f"{use} traffic"
    return MetricDef(
        f"{use}_traffic", label, "B", "GB", 1e9, 1, meaning=meaning, of=lambda estimate, _: estimate.traffic[use]
    )


def _aggregate(estimate: "Estimate") -> float:
    return flops_per_iteration(estimate.config.model, estimate.config.parallel.B) / estimate.iteration_time


def _tokens_per_s(estimate: "Estimate") -> float:
    return estimate.sequences_per_s * estimate.config.model.seq


TERA = 1e12
HOUR = 3600
# Answers and tables of one's own configurations have their metrics in this order.
_ROWS = (
    MetricDef(
        *("iteration_time", "iteration", "s", "s", 1, 2),
        meaning="from the first forward pass to the end of the optimizer step",
        of=lambda estimate, _: estimate.iteration_time,
        answer=True,
        margin="throughput",
        sign=-1,
    ),
    MetricDef(
        *("model_throughput_per_gpu", "model-FLOPs throughput per GPU", "FLOP/s", "teraFLOP/s", TERA, 1),
        axis="Achieved teraFLOP/s per GPU (model FLOPs)",
        meaning="FLOPs of one forward and one backward pass of the model, whatever is recomputed, over iteration time "
        "and GPUs: what `plan`, `simulate` and the page show, with the MFU",
        of=lambda estimate, _: estimate.model_throughput_per_gpu,
        answer=True,
        if_shown=True,
        margin="throughput",
        short="model teraFLOP/s\nper GPU",
    ),
    MetricDef(
        *("model_flops_utilization", "MFU", "1", "%", 0.01, 1),
        meaning="`model_throughput_per_gpu` over the GPU's peak (MFU)",
        of=lambda estimate, _: estimate.model_flops_utilization,
        answer=True,
        if_shown=True,
        margin="throughput",
    ),
    MetricDef(
        *("throughput_per_gpu", "eq. 3 throughput per GPU", "FLOP/s", "teraFLOP/s", TERA, 1),
        axis="Achieved teraFLOP/s per GPU (eq. 3)",
        meaning="FLOPs of equation 3, the recomputed forward pass included whether or not there is one, over iteration "
        "time and GPUs",
        of=lambda estimate, _: estimate.throughput_per_gpu,
        answer=True,
        margin="throughput",
    ),
    MetricDef(
        *("sequences_per_s", "throughput", "sequences/s", "sequences/s", 1, 2),
        axis="Throughput (sequences/s)",
        meaning="batch size over iteration time",
        of=lambda estimate, _: estimate.sequences_per_s,
        answer=True,
        margin="throughput",
        short="sequences/s",
    ),
    MetricDef(
        *("tokens_per_s", "tokens", "tokens/s", "tokens/s", 1, 0),
        meaning="`sequences_per_s` in tokens",
        of=lambda estimate, _: _tokens_per_s(estimate),
        answer=True,
        if_shown=True,
        margin="throughput",
        short="tokens/s",
    ),
    MetricDef(
        *("tokens_per_s_per_gpu", "tokens per GPU", "tokens/s", "tokens/s", 1, 0),
        meaning="`tokens_per_s` over GPUs",
        of=lambda estimate, _: _tokens_per_s(estimate) / estimate.config.parallel.n,
        answer=True,
        if_shown=True,
        margin="throughput",
        short="tokens/s\nper GPU",
    ),
    MetricDef(
        *("idle_fraction", "idle", "1", "%", 0.01, 1),
        meaning="share of the iteration that a pipeline rank waits, mean over ranks: `bubble_time` over "
        "`iteration_time`",
        of=lambda estimate, _: estimate.idle_fraction,
        answer=True,
    ),
    MetricDef(
        *("bubble_fraction", "bubble over ideal time", "1", "%", 0.01, 1),
        meaning="waiting over computing, mean over pipeline ranks, as the paper's (p-1)/m: simulated, emulated or "
        "measured; where derived, of the schedule or by the paper's formula",
        of=lambda estimate, _: estimate.bubble_fraction,
        answer=True,
    ),
    MetricDef(
        *("peak_memory", "peak memory", "B", "GB", 1e9, 1),
        meaning="on the fullest GPU, at its fullest moment",
        of=lambda estimate, _: estimate.peak_memory,
        answer=True,
        margin="memory",
    ),
    _phase("forward", "forward passes", "the layers' forward passes"),
    _phase("recompute", "recomputation", "the forward passes that are repeated"),
    _phase("backward", "backward passes", "the layers' backward passes"),
    _phase("embedding_and_logits", "embedding and logits", "embedding, logits and loss"),
    _phase("pipeline_communication", "exposed p2p", "exposed time of point-to-point messages"),
    _phase(
        "bubble",
        "bubble",
        "waiting of a rank; `idle_fraction` is this over the iteration, `bubble_fraction` over its computing time",
    ),
    _phase(
        *("data_parallel", "exposed gradient all-reduce"),
        "exposed time of the gradient reduction, and of gathering the weights of a sharded optimizer",
    ),
    _phase("optimizer", "optimizer", "the optimizer step"),
    _phase("host", "host", "what only the host does: fetching microbatches, ends of iterations"),
    _bubble(
        *("fill_and_drain", "bubble: fill and drain"),
        "the part of `bubble_time` that is left with equal stages and messages that take no time (simulated)",
    ),
    _bubble("stage_imbalance", "bubble: stage imbalance", "what the stages' own times add to that (simulated)"),
    _bubble(
        "message_waiting",
        "bubble: messages",
        "what messages that take time add to both: the three are `bubble_time`, one below 0 shortens the waiting",
    ),
    _traffic(
        "pipeline",
        "boundary tensors that one GPU sends, on the rank that sends most; with them what a shared vocabulary needs",
    ),
    _traffic("tensor", "what one GPU sends in tensor-parallel collectives, on the rank that sends most"),
    _traffic("data", "what one GPU sends in the data-parallel reduction, on the rank that sends most"),
    _traffic("embedding", "what one GPU sends for the gradient of the tied embedding"),
    MetricDef(
        *("aggregate_throughput", "eq. 3 aggregate", "FLOP/s", "petaFLOP/s", 1e15, 1),
        meaning="equation 3's FLOPs over the iteration time, of all GPUs",
        of=lambda estimate, _: _aggregate(estimate),
        if_shown=True,
        margin="throughput",
    ),
    MetricDef(
        *("share_of_peak", "share of peak", "1", "%", 0.01, 1),
        meaning="`throughput_per_gpu` over the GPU's peak",
        of=lambda estimate, cluster: estimate.throughput_per_gpu / cluster.peak_flops,
        if_shown=True,
        margin="throughput",
    ),
    MetricDef(
        *("tensor_communication_time", "tensor all-reduces", "s", "s", 1, 2),
        meaning="tensor-parallel collectives; part of the passes",
    ),
    MetricDef(
        *("gemm_throughput", "rate in GEMMs", "FLOP/s", "teraFLOP/s", TERA, 1),
        meaning="FLOPs of the matrix products over the time spent in them",
    ),
    # Those of a whole run, which `reproduce.planning.run_cost` derives from a simulated iteration.
    MetricDef(
        *("run_time", "time of the run", "d", "days", 1, 1),
        meaning="days to train on the tokens asked for, with failures and stragglers if asked for",
        margin="throughput",
        sign=-1,
    ),
    MetricDef(
        *("gpu_time", "GPU hours", "s", "", HOUR, 0),
        meaning="`run_time` of all GPUs together",
        margin="throughput",
        sign=-1,
    ),
    MetricDef(
        *("cost", "cost", "USD", "USD", 1, 0),
        meaning="`gpu_time` at the price of a GPU hour",
        margin="throughput",
        sign=-1,
    ),
    MetricDef(
        *("energy", "energy", "J", "MWh", 1e6 * HOUR, 0),
        meaning="of `gpu_time`: a GPU's watts with its share of the node, computing and waiting, times the PUE",
        margin="throughput",
        sign=-1,
    ),
    # Those of single artifacts that have a margin.
    MetricDef(
        *("normalised_throughput", "normalised throughput", "1", "", 1, 3),
        axis="Normalized throughput",
        meaning="throughput by equation 1 with our times, over the best microbatch size's",
        margin="ratio",
    ),
    MetricDef(
        *("microbatch_time", "time of a microbatch", "s", "s", 1, 3),
        meaning="one microbatch's forward and backward pass through the model",
        margin="throughput",
        sign=-1,
    ),
    MetricDef(
        *("training_time", "training time, eq. (4)", "d", "days", 1, 1),
        meaning="days to train on the given tokens, by equation 4 with our throughput",
        margin="throughput",
        sign=-1,
    ),
    MetricDef(
        *("training_time_eq3", "training time, eq. (3)", "d", "days", 1, 1),
        meaning="the same by equation 3",
        margin="throughput",
        sign=-1,
    ),
    MetricDef(
        *("peak_without_recomputation", "peak without recomputation", "B", "GB", 1e9, 1),
        meaning="`peak_memory` if nothing were recomputed",
        margin="memory",
    ),
)
METRICS = {metric.name: metric for metric in _ROWS}


def answers() -> list[MetricDef]:
    """The metrics that an answer about a configuration gives."""
    return [metric for metric in METRICS.values() if metric.answer]


def listed() -> list[MetricDef]:
    """Of these what is listed where the paper is not compared.

    Not eq. (3)'s, which counts a pass that may not run; nor the bubble over ideal time, which is no share of the
    iteration; nor the tokens of all GPUs, which follow from those of one.
    """
    return [
        metric for metric in answers() if metric.name not in ("throughput_per_gpu", "bubble_fraction", "tokens_per_s")
    ]


def of_every_point(shown: Collection[Quantity] = ()) -> list[MetricDef]:
    """The metrics that every simulated point of an artifact with these quantities has.

    What an artifact shows by a `Quantity` of its own, in place of the row, it computes for the points that it chooses.
    """
    names = {quantity.name for quantity in shown if isinstance(quantity, MetricDef)}
    return [metric for metric in METRICS.values() if metric.of and (not metric.if_shown or metric.name in names)]
