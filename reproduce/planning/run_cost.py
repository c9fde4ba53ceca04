"""A whole training run: its days, GPU hours, cost and energy, derived from one simulated iteration.

The iteration is taken to repeat until all tokens are seen. What that leaves out (evaluation, warm-up of the batch,
queues) is not modelled; failures and slow GPUs are, if asked for (`failures.py`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import fsum
from typing import Any

from ptdp_core.simulator import Cluster, Estimate
from reproduce.experiment import margins
from reproduce.experiment.metrics import HOUR, METRICS
from reproduce.output.columns import Column, Table, key, quantity_column
from reproduce.planning.failures import Failures, straggler_slowdowns
from results.records import Metric
from results.records.errors import UsageError

DAY = 24 * HOUR
ORIGIN = "derived"
LEAST_SHARE = 0.01  # of the time, that trains: with less a run takes for ever, and so does its simulation
NAMES = ("run_time", "gpu_time", "cost", "energy")
SHOWN = (*NAMES, "tokens_per_s", "tokens_per_s_per_gpu", "model_flops_utilization")


@dataclass(frozen=True)
class TrainingRun:
    """What is asked of a run.

    - `tokens`: to train on
    - `price`: USD for an hour of a GPU, None if not asked for
    - `power`: watts of a GPU with its share of the node, computing or not; None for the cluster's numbers
    - `pue`: watts that the building takes for one of a node; None for the cluster's number
    - `gpu_mtbf`, `checkpoint`, `restart`: seconds between failures of one GPU, of a checkpoint, of a restart; with a
      `gpu_mtbf` of None nothing fails
    - `straggler`: by which share of its time one GPU computes slower
    """

    tokens: float
    price: float | None = None
    power: float | None = None
    pue: float | None = None
    gpu_mtbf: float | None = None
    checkpoint: float = 0.0
    restart: float = 0.0
    straggler: float = 0.0

    def failures(self, gpus: int) -> Failures | None:
        """How a job of so many GPUs fails: each with the same probability, and the job with the first of them."""
        return Failures(self.gpu_mtbf / gpus, self.checkpoint, self.restart) if self.gpu_mtbf else None


def values(estimate: Estimate, cluster: Cluster, run: TrainingRun) -> dict[str, float]:
    """The numbers of the run by metric, in base units; what was not asked for or is not known is left out."""
    gpus, rate = estimate.config.parallel.n, METRICS["tokens_per_s"].simulated(estimate, cluster)
    assert rate is not None
    seconds = run.tokens / rate * (1 + _slowdowns(estimate, cluster, run)[0])
    if failures := run.failures(gpus):
        share = failures.effective_share(failures.best_interval)
        if share < LEAST_SHARE:
            raise UsageError(
                f"with a failure every {failures.mtbf:.3g} s, checkpoints of {failures.checkpoint:g} s and restarts of "
                f"{failures.restart:g} s a run gets nowhere; needs less of them; try --restart-seconds 300"
            )
        seconds /= share
    found = {"run_time": seconds / DAY, "gpu_time": seconds * gpus}
    if run.price is not None:
        found["cost"] = seconds * gpus / HOUR * run.price
    if watts := mean_power(estimate, cluster, run):
        found["energy"] = seconds * gpus * watts
    return found


def _slowdowns(estimate: Estimate, cluster: Cluster, run: TrainingRun) -> tuple[float, float]:
    """By which share the straggler makes an iteration longer: mean over the pipeline ranks that it may be on, worst."""
    if not run.straggler:
        return 0.0, 0.0
    slowdowns = straggler_slowdowns(estimate, cluster, run.straggler)
    return fsum(slowdowns) / len(slowdowns), max(slowdowns)


def mean_power(estimate: Estimate, cluster: Cluster, run: TrainingRun) -> float | None:
    """Watts of a GPU over an iteration, with its share of node and building; None if the cluster's are not known.

    In the bubble, and while the host is busy, it takes `idle_power`, else `busy_power`.
    """
    waits = (estimate.phase_times["bubble"] + estimate.phase_times["host"]) / estimate.iteration_time
    watts = run.power or cluster.busy_power * (1 - waits) + cluster.idle_power * waits
    return watts * (run.pue or cluster.power_usage_effectiveness) or None


def document(estimate: Estimate, cluster: Cluster, run: TrainingRun) -> dict[str, Any]:
    """The numbers of the run and their intervals, as JSON, with what failures do."""
    metrics = run_metrics(estimate, cluster, run)
    answer: dict[str, Any] = {"origin": ORIGIN, "tokens": run.tokens}
    answer |= {name: metrics[name].value if name in metrics else None for name in NAMES}
    answer["mean_power"] = mean_power(estimate, cluster, run)
    answer["intervals"] = {name: metric.interval.to_json() for name, metric in metrics.items() if metric.interval}
    if run.straggler:
        mean, worst = _slowdowns(estimate, cluster, run)
        answer |= {"straggler_slowdown": mean, "worst_straggler_slowdown": worst}
    if failures := run.failures(estimate.config.parallel.n):
        best = failures.best_interval
        answer["failures"] = {
            "mtbf": failures.mtbf,
            "young_interval": failures.young_interval,
            "daly_interval": failures.daly_interval,
            "checkpoint_interval": best,
            "effective_share": failures.effective_share(best),
            "simulated_effective_share": failures.simulated_share(best),
        }
    return answer


def run_metrics(estimate: Estimate, cluster: Cluster, run: TrainingRun) -> dict[str, Metric]:
    """The numbers of the run as a record has them; each has the interval of the iteration that it is derived from."""
    known = margins.intervals_of(estimate, cluster)
    metrics = {}
    for name, value in values(estimate, cluster, run).items():
        interval = known(name, value)
        metrics[name] = Metric(value, METRICS[name].unit, ORIGIN, interval=interval)
    return metrics


def table(rows: Iterable[tuple[str, Mapping[str, Any], Mapping[str, Any]]]) -> Table:
    """Runs, from their labels, the metrics of their iterations and their documents: what is known of one of them."""
    shown = [{"of": label, **metrics, **of_run, "sure": _sure(of_run)} for label, metrics, of_run in rows]
    columns = [Column("of", key("of"))]
    columns += [quantity_column(METRICS[name], key(name)) for name in SHOWN if any(row[name] for row in shown)]
    if any(row["sure"] for row in shown):
        columns.insert(2, Column("days, interval", key("sure")))  # beside the days, to leave with them
    return Table(columns, shown)


def _sure(of_run: Mapping[str, Any]) -> str | None:
    interval = of_run["intervals"].get("run_time")
    return f"{interval['low']:.1f} to {interval['high']:.1f}" if interval else None


def lines(of_run: Mapping[str, Any], run: TrainingRun) -> list[str]:
    """What to know when reading the numbers of a run, from its document: where they come from, and failures."""
    notes = [
        f"a run of {run.tokens / 1e9:,g} billion tokens, derived from the simulated iteration, which is taken to "
        "repeat all along: no evaluation, no warm-up" + ("" if run.gpu_mtbf else ", no failures (--mtbf)")
    ]
    if watts := of_run["mean_power"]:
        whose = "--power" if run.power else "busy_power and idle_power of the cluster"
        notes.append(f"energy at {watts:.0f} W a GPU on average, with its share of node and building ({whose}, PUE)")
    else:
        notes.append("no energy: the cluster's file has no busy_power; try --power 1000, watts of a GPU with its node")
    if run.straggler:
        notes.append(
            f"one GPU, or node, that computes {run.straggler:.1%} slower makes every iteration "
            f"{of_run['straggler_slowdown']:.1%} longer, mean over the pipeline ranks that it may be on, and at worst "
            f"{of_run['worst_straggler_slowdown']:.1%}"
        )
    if failures := of_run.get("failures"):
        notes.append(
            f"failures: one every {_short(failures['mtbf'] / HOUR)} h; a checkpoint every "
            f"{_short(failures['checkpoint_interval'] / 60)} min is best (Young "
            f"{_short(failures['young_interval'] / 60)}, Daly {_short(failures['daly_interval'] / 60)}) and leaves "
            f"{failures['effective_share']:.1%} of the time to training by Daly's closed form, "
            f"{failures['simulated_effective_share']:.1%} by simulated events"
        )
    return notes


def _short(value: float) -> str:
    """Three significant digits, but whole numbers in full."""
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"
