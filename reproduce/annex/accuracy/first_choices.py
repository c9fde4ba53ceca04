"""Would our first choice have been a good one? Where a source measured several layouts of one job, theirs against ours.

A sweep are runs of one model on as many GPUs of one cluster with one batch, in one precision and by one program, that
differ in their layouts: sizes, schedule, recomputation, and who holds the states. Each is simulated; the one that is
fastest then would have been taken.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from math import fsum
from statistics import fmean
from typing import Any

from ptdp_core.config import TrainingConfig
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.cluster import with_program
from reproduce.annex.accuracy.ledger import Study, studies
from reproduce.output.columns import Table, keyed
from reproduce.output.terminal import percent

CLEAR = 0.02  # layouts that were measured nearer to each other than this are no choice


@cache
def sweeps() -> tuple[dict[str, Any], ...]:
    """A line for each sweep: its study, job, number of layouts, and what taking our first would have cost.

    `rank` is the place of the fastest measured layout in our order, in which what by us does not fit comes last. `loss`
    is the measured time of our first over the fastest's, less 1; `chance` the same of one taken blindly, on average.
    """
    return tuple(line for study in studies() if not study.again for line in _of_study(study))


def _of_study(study: Study) -> Iterator[dict[str, Any]]:
    jobs: dict[Any, dict[TrainingConfig, float]] = {}
    for point in study.points.itertuples():
        parallel = point.config.parallel
        job = (point.config.model, parallel.n, parallel.B, parallel.fp8_recipe, point.cluster, point.software)
        jobs.setdefault(job, {})[point.config] = float(point.iteration_time)
    for (model, gpus, batch, recipe, cluster, software), times in jobs.items():
        if len(times) < 2:
            continue
        machine = with_program(load_cluster(cluster), study.program)
        estimates = {config: simulate(config, machine, software) for config in times}
        ours = sorted(times, key=lambda config: (not estimates[config].fits, estimates[config].iteration_time))
        fastest = min(times, key=lambda config: times[config])
        yield {
            "study": study.id,
            "job": f"{model.layers} x {model.hidden}, s={model.seq}",
            "gpus": gpus,
            "batch": batch,
            "precision": recipe,
            "layouts": len(times),
            "rank": ours.index(fastest) + 1,
            "loss": times[ours[0]] / times[fastest] - 1,
            "chance": fsum(times.values()) / len(times) / times[fastest] - 1,
        }


def table(lines: Sequence[dict[str, Any]]) -> Table:
    """A row for each study, and one for all sweeps."""
    studied = dict.fromkeys(line["study"] for line in lines)
    parts = {name: [line for line in lines if line["study"] == name] for name in studied} | {"all": list(lines)}
    columns = [
        *keyed("study", "sweeps", "layouts"),
        *keyed("best is our first", "within 2%", "mean loss", "largest loss", "blindly", form=percent),
    ]
    return Table(columns, [{"study": name, **_summary(of_part)} for name, of_part in parts.items()])


def _summary(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    losses = [line["loss"] for line in lines]
    return {
        "sweeps": len(lines),
        "layouts": sum(line["layouts"] for line in lines),
        "best is our first": fmean(line["rank"] == 1 for line in lines),
        "within 2%": fmean(loss <= CLEAR for loss in losses),
        "mean loss": fmean(losses),
        "largest loss": max(losses),
        "blindly": fmean(line["chance"] for line in lines),
    }
