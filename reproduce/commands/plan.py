"""`reproduce plan`: how to train a model on n GPUs: the paper's takeaways against the best by simulation.

This module reads the request and finds the answer; `plan_text.py` shows it and writes it down.
"""

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.records.errors import DONE, NothingSelectedError, UsageError, did_you_mean
from benchmarks.records.provenance import collect, timestamp
from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.simulator import Cluster, Estimate
from ptdp_core.simulator.search import Search, Takeaways, enough_gpus, least_memory, order, search, takeaways
from ptdp_core.simulator.space import Job, data_parallel_kind, grids, nearest_batch
from reproduce.experiment import published
from reproduce.running.fidelities import open_cluster

LIMITS = {"gpus": 1_000_000, "batch": 1_000_000, "layers": 10_000, "top": 100_000}
SIZES = ("layers", "hidden", "heads", "seq", "vocab")

HELP = """The model is one of the paper's, by its parameter count ({names}),
or your own: --layers --hidden --heads [--seq --vocab]. For a model of Table 1, --gpus and --batch
may be left out: then they are the table's, and the paper's own configuration is ranked with the rest.

First the paper's takeaways: (1) tensor parallelism up to the GPUs of a node, then pipeline
parallelism; (2) the smallest model-parallel size M = t*p that fits in memory, then data parallelism;
(3) the best microbatch size. Then every legal (p, t, d, v, b, recompute) with p*t*d equal to the GPUs
given that fits in memory, ranked by simulated time. What cannot be among the best (its least possible
time is too long) is not simulated; how many is said.

Everything is simulated. Exit code 2 if no data-parallel size divides the batch, 9 if nothing fits.

examples:
  reproduce plan --model 175b --gpus 1024 --batch 1536
  reproduce plan --model 145.6b --top 20
  reproduce plan --layers 48 --hidden 8192 --heads 64 --gpus 512 --batch 1536 --json

"""


@dataclass(frozen=True)
class Plan:
    """The answer. `paper` is the paper's own configuration for this job with its published FLOP/s, if it gives one."""

    name: str
    job: Job
    cluster: Cluster
    cluster_name: str
    takeaways: Takeaways
    search: Search
    top: int
    paper: "PaperPlan | None"

    @property
    def best(self) -> Estimate:
        """The fastest configuration."""
        return self.search.ranked[0]

    def found(self, config: TrainingConfig) -> Estimate | None:
        """The simulated configuration equal to this one; None if it is not legal, does not fit, or was discarded."""
        return next((estimate for estimate in self.search.ranked if estimate.config == config), None)

    @property
    def refined(self) -> Estimate | None:
        """The fastest with the p, t and d of the takeaways, which say nothing about v and recomputation."""
        chosen = self.takeaways.chosen
        if chosen is None:
            return None
        grid = _grid(chosen.config.parallel)
        return min((e for e in self.search.ranked if _grid(e.config.parallel) == grid), key=order, default=None)

    @property
    def recomputing(self) -> Estimate | None:
        """The fastest that recomputes, as all runs of the paper's tables did, if the best does not.

        It is no slower than the takeaways' choice, so it is known where there is one.
        """
        if self.takeaways.chosen is None or self.best.config.parallel.recompute == "full":
            return None
        return next(e for e in self.search.ranked if e.config.parallel.recompute == "full")


def _grid(parallel: ParallelConfig) -> tuple[int, int, int]:
    return parallel.p, parallel.t, parallel.d


@dataclass(frozen=True)
class PaperPlan:
    """A configuration that the paper ran: where it stands, and the FLOP/s per GPU printed there."""

    where: str
    config: TrainingConfig
    flops_per_gpu: float


def help_text() -> str:
    """`HELP` with the names of the models."""
    return HELP.format(names=", ".join(main_names()))


def run(args: Namespace) -> int:
    """Answer the request in `args` (see `cli`): print the plan, write it, return the exit code.

    Raises `UsageError` for a request that cannot be, `NothingSelectedError` if nothing fits in memory.
    """
    from reproduce.analysis.planning import plan_record, plan_text

    started, clock = timestamp(), time.monotonic()
    cluster, reference = open_cluster(args.cluster)
    name, job = request(args)
    plan = make_plan(name, job, cluster, reference.name, args.top)
    seconds = round(time.monotonic() - clock, 3)
    provenance = collect(args.command, None, started, seconds, reference, plan_record.code_digest())
    folder = plan_record.write(plan, provenance, Path(args.results))
    if args.json:
        plan_record.print_json(plan, folder)
    else:
        plan_text.print_plan(plan, folder)
    return DONE


def make_plan(name: str, job: Job, cluster: Cluster, cluster_name: str, top: int) -> Plan:
    """Find the best configurations for `job`. Raises `UsageError` and `NothingSelectedError`."""
    check_possible(job, cluster)
    heuristic = takeaways(job, cluster)
    paper = paper_plan(job)
    include = [heuristic.chosen.config] if heuristic.chosen else []
    include += [paper.config] if paper else []
    with _status() as on_step:
        found = search(job, cluster, top, include, on_step=on_step)
    if not found.ranked:
        raise NothingSelectedError(
            f"all {found.fitting} configurations that fit have schedules too long to execute; try more GPUs, or fewer "
            f"layers than {job.model.layers}"
        )
    return Plan(name, job, cluster, cluster_name, heuristic, found, top, paper)


def check_possible(job: Job, cluster: Cluster) -> None:
    """Raise unless there is a legal configuration that fits: what is missing, in numbers, and the nearest fix."""
    least = least_memory(job, cluster)
    if least is None:
        sizes = sorted({d for _, _, d in grids(job, cluster.gpus_per_node)})
        shown = ", ".join(map(str, sizes[:6])) + (", ..." if len(sizes) > 6 else "")
        raise UsageError(
            f"--batch {job.B} is divisible by no data-parallel size that {job.n} GPUs allow (d = {shown}); "
            f"needs a multiple of one of them; try --batch {nearest_batch(job, cluster.gpus_per_node)}"
        )
    need, config = least
    if need <= cluster.usable_memory:
        return
    parallel = config.parallel
    more = enough_gpus(job, cluster)
    fix = f"try --gpus {more}" if more else "no multiple of these GPUs up to 64 times helps; try a smaller model"
    raise NothingSelectedError(
        f"nothing fits: of all legal configurations on {job.n} GPUs, p={parallel.p}, t={parallel.t}, d={parallel.d}, "
        f"v={parallel.v}, b={parallel.b}, recompute={parallel.recompute} takes least memory, {need / 1e9:.1f} GB; "
        f"{cluster.name} has {cluster.usable_memory / 1e9:.1f} GB to fill; {fix}"
    )


@contextmanager
def _status() -> Iterator[Callable[[int, int], None]]:
    if not sys.stderr.isatty():
        yield lambda done, most: None
        return
    from rich.console import Console

    with Console(stderr=True).status("plan") as status:
        yield lambda done, most: status.update(f"plan: {done} of at most {most} configurations simulated")


def models() -> dict[str, ModelConfig]:
    """The paper's models by their parameter counts: as printed in Tables 1 and 2, and rounded as in the text."""
    found: dict[str, ModelConfig] = {}
    gpt3 = published.artifact("fig_interleaved")["config"]  # 175 billion there, 174.6 in Table 2
    rows = [*published.artifact("table_weak_scaling")["rows"], *({**gpt3, "parameters_B": n} for n in (175, 174.6))]
    for row in rows:
        model = ModelConfig(row["layers"], row["hidden"], row["heads"])
        billions = row["parameters_B"]
        found[f"{billions:g}b"] = model
        if billions >= 10:  # the paper's text says 145B and 530B
            found |= {f"{int(billions)}b": model, f"{round(billions)}b": model}
        if billions >= 1000:
            found["1t"] = model
    return found


def main_names() -> list[str]:
    """One name for each of the paper's models, by size."""
    names: dict[ModelConfig, str] = {}
    for name, model in models().items():
        names.setdefault(model, name)
    return [*sorted(names.values(), key=lambda name: float(name.rstrip("b"))), "1t"]


def request(args: Namespace) -> tuple[str, Job]:
    """The model's name and the job that the command line asks for. Raises `UsageError`."""
    for field, most in LIMITS.items():
        value = getattr(args, field)
        if value is not None and not 1 <= value <= most:
            raise UsageError(f"--{field} {value} is out of range; needs 1 to {most}")
    name, model = _model(args)
    n, batch = args.gpus, args.batch
    if n is None and batch is None and (row := _table_1_row(ModelConfig(model.layers, model.hidden, model.heads))):
        n, batch = row["gpus"], row["B"]
    for option, value in (("--gpus", n), ("--batch", batch)):
        if value is None:
            raise UsageError(f"{option} is missing; needs the {option[2:]} to plan for; try {option} 1024")
    return name, Job(model, n, batch)


def _model(args: Namespace) -> tuple[str, ModelConfig]:
    given = {field: getattr(args, field) for field in SIZES if getattr(args, field) is not None}
    if args.model is None:
        if missing := [f"--{field}" for field in SIZES[:3] if field not in given]:
            raise UsageError(f"{', '.join(missing)} missing; needs --model NAME, or --layers, --hidden and --heads")
        name = "own"
    elif own := [f"--{field}" for field in SIZES[:3] if field in given]:
        raise UsageError(f"--model {args.model} with {', '.join(own)}; needs one or the other")
    else:
        name, known = args.model.lower(), models()
        if name not in known:
            hint = did_you_mean(name, list(known))
            raise UsageError(f"unknown model {args.model!r}{hint} (known: {', '.join(main_names())})")
        model = known[name]
        given = {"layers": model.layers, "hidden": model.hidden, "heads": model.heads, **given}
    try:
        return name, ModelConfig(**given)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _table_1_row(model: ModelConfig) -> Mapping[str, Any] | None:
    for row in published.artifact("table_weak_scaling")["rows"]:
        if ModelConfig(row["layers"], row["hidden"], row["heads"]) == model:
            found: Mapping[str, Any] = row
            return found
    return None


def paper_plan(job: Job) -> PaperPlan | None:
    """The configuration that the paper's Table 1 or 2 shows for exactly this job, if there is one."""
    row = _table_1_row(job.model)
    if row and (row["gpus"], row["B"]) == (job.n, job.B):
        parallel = ParallelConfig(
            p=row["p"],
            t=row["t"],
            d=job.n // (row["p"] * row["t"]),
            v=row["v"],
            b=row["b"],
            B=job.B,
            data_parallel=row["data_parallel"],
        )
        return PaperPlan("Table 1", TrainingConfig(job.model, parallel), row["tflops_per_gpu"] * 1e12)
    for row in published.artifact("table_zero3")["rows"]:
        if row["scheme"] != "PTD-P" or (row["gpus"], row["B"]) != (job.n, job.B):
            continue
        if models()[f"{row['parameters_B']:g}b"] == job.model:
            t = published.constants()["gpus_per_node"]  # M = t*p is printed; t is the node's, as the text has it
            p = row["model_parallel_size"] // t
            parallel = ParallelConfig(
                p=p, t=t, d=job.n // (p * t), b=row["b"], B=job.B, data_parallel=data_parallel_kind(p)
            )
            return PaperPlan("Table 2", TrainingConfig(job.model, parallel), row["tflops_per_gpu"] * 1e12)
    return None
