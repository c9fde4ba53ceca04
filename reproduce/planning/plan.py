"""What was asked of `reproduce plan`, and the answer: the paper's takeaways against the best by simulation."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.simulator import Cluster, Estimate, simulate
from ptdp_core.simulator.programs import load_program
from reproduce.experiment import published
from reproduce.planning.advice import advice, as_typed
from reproduce.planning.amounts import sequences
from reproduce.planning.cells import OFFLOADS, PAPERS_TECHNIQUES, SET_FIELDS, TECHNIQUES, Techniques, data_parallel_kind
from reproduce.planning.models import find, named, table_1_row
from reproduce.planning.search import (
    HEADROOM,
    Search,
    Takeaways,
    is_tight,
    least_memory,
    nearest_gpus,
    search,
    takeaways,
)
from reproduce.planning.space import TrainingJob, grids, nearest_batch
from reproduce.planning.untried import Untried, may_use, untried
from reproduce.planning.what_if import further
from results.records.errors import NothingSelectedError, ReproduceError, UsageError, did_you_mean

if TYPE_CHECKING:
    from reproduce.planning.run_cost import TrainingRun

LIMITS = {"gpus": 1_000_000, "batch": 1_000_000, "layers": 10_000, "top": 100_000}
MODEL_FIELDS = tuple(field.name for field in fields(ModelConfig))
REQUIRED_SIZES = ("layers", "hidden", "heads")


@dataclass(frozen=True)
class TrainingPlan:
    """The answer.

    `headroom` is the share of a GPU's memory that the best leaves free, if anything does. `papers_best` is the best
    with the paper's techniques alone, None if none of these fits; `paper` is the paper's own configuration for this job
    with its published FLOP/s, if it gives one. `run` is what is asked of the whole run, None for nothing; with
    `sensitivity` it is asked what limits the best. `not_modelled` is what of the model is not, '' if all is.
    The search may use `techniques`, and the program has `switched_on` beside the cluster's switches.
    """

    name: str
    job: TrainingJob
    cluster: Cluster
    cluster_name: str
    takeaways: Takeaways
    search: Search
    top: int
    headroom: float
    papers_best: Estimate | None
    paper: "PaperPlan | None"
    run: "TrainingRun | None" = None
    sensitivity: bool = False
    not_modelled: str = ""
    techniques: Techniques = tuple(TECHNIQUES)
    switched_on: Sequence[str] = ()

    @cached_property
    def further(self) -> dict[str, Any]:
        """What is asked of the best beyond its iteration, as JSON: `run` and `elasticities`."""
        return further(self.best, self.cluster, self.run, self.sensitivity)

    @cached_property
    def untried(self) -> list[Untried]:
        """What the search does not try, and what it would give."""
        return untried(self.best, self.cluster, self.techniques)

    @property
    def best(self) -> Estimate:
        """The first of the ranking: of the fastest that leave room, within `NEAR_TIE`, one that leaves most."""
        return self.search.ranked[0]

    def is_tight(self, estimate: Estimate) -> bool:
        """Whether a configuration leaves less memory free than the headroom."""
        return is_tight(estimate, self.cluster, self.headroom)


@dataclass(frozen=True)
class PaperPlan:
    """A configuration that the paper ran: where it stands, the FLOP/s per GPU printed there, and its simulation."""

    where: str
    estimate: Estimate
    throughput_per_gpu: float


class NothingFitsError(NothingSelectedError):
    """Of all legal layouts the smallest needs `least` bytes of a GPU, which has `room`; `fix` is what to try."""

    def __init__(self, smallest: str, gpus: int, least: int, cluster: Cluster, fix: str) -> None:
        self.least, self.room, self.fix = least, cluster.usable_memory, fix
        super().__init__(
            f"nothing fits: of all legal configurations on {gpus} GPUs, {smallest} takes least memory, "
            f"{least / 1e9:.1f} GB; {cluster.name} has {self.room / 1e9:.1f} GB to fill; {fix}"
        )


def request(asked: Mapping[str, Any]) -> tuple[str, TrainingJob]:
    """The model's name and the job asked for: by `model`, `gpus`, `batch`, `top` and the fields of an own model.

    `set` has fields of the model, and `SET_FIELDS` of every layout. What is not asked for is None or missing; a batch
    may be a text, such as '4M' tokens. Raises `UsageError`.
    """
    given = dict(asked.get("set") or {})
    asked = {**asked, **{name: given.pop(name) for name in MODEL_FIELDS if name in given}}
    _check_ranges({field: asked.get(field) for field in ("gpus", "layers", "top")})
    name, model = _model(asked)
    n: Any = asked.get("gpus")
    batch: Any = asked.get("batch")
    if isinstance(batch, str):
        batch = sequences(batch, model.seq)
    _check_ranges({"batch": batch})
    of_paper = replace(model, seq=ModelConfig.seq, vocab=ModelConfig.vocab)
    if n is None and batch is None and (row := table_1_row(of_paper)):
        n, batch = row["gpus"], row["B"]
    for field, value, what in (("gpus", n, "GPUs"), ("batch", batch, "sequences of an iteration")):
        if value is None:
            raise UsageError(f"{field} is missing; needs the number of {what} to plan for; try {field}=1024")
    if unknown := [field for field in given if field not in SET_FIELDS]:
        hint = did_you_mean(unknown[0], SET_FIELDS) or "; what a search chooses is --allow, --forbid"
        raise UsageError(f"--set {unknown[0]}: needs a field of the model, or of {', '.join(SET_FIELDS)}{hint}")
    try:
        TrainingConfig(model, ParallelConfig(**given))
    except ConfigurationError as error:
        raise UsageError(str(error)) from None
    return name, TrainingJob(model, n, batch, tuple(given.items()))


def _check_ranges(values: Mapping[str, Any]) -> None:
    for field, value in values.items():
        if isinstance(value, int | float) and not 1 <= value <= LIMITS[field]:
            raise UsageError(f"{field}={value} is out of range; needs 1 to {LIMITS[field]}")


def _model(asked: Mapping[str, Any]) -> tuple[str, ModelConfig]:
    given = {field: asked[field] for field in MODEL_FIELDS if asked.get(field) is not None}
    try:
        if (name := asked.get("model")) is not None:
            if given_sizes := [field for field in REQUIRED_SIZES if field in given]:
                raise UsageError(f"model={name!r} with {', '.join(given_sizes)}; needs one or the other")
            found = find(name)
            model = replace(found.model, **given)
            if "window" not in given and model.seq <= model.window:  # it cuts nothing of sequences this short
                model = replace(model, window=0)
            return found.name, model
        if missing := [field for field in REQUIRED_SIZES if field not in given]:
            raise UsageError(f"{', '.join(missing)} missing; needs a model by name, or layers, hidden and heads")
        return "own", ModelConfig(**given)
    except ConfigurationError as error:
        raise UsageError(str(error)) from None


def make_plan(
    name: str,
    job: TrainingJob,
    cluster: Cluster,
    cluster_name: str,
    top: int,
    on_step: Callable[[int], None] = lambda done: None,
    headroom: float = HEADROOM,
    allow: Iterable[str] = (),
    forbid: Iterable[str] = (),
) -> TrainingPlan:
    """Find the best configurations for `job`; `on_step` is told how many are simulated.

    What may be used is `untried.may_use`; the takeaways and the paper's best are those of the cluster's own program.
    Raises `UsageError` and `NothingSelectedError`.
    """
    if not 0 <= headroom < 1:
        raise UsageError(f"headroom={100 * headroom:g} is no share; needs 0 or more and less than 100 percent; try 10")
    plain, (cluster, techniques), job = cluster, may_use(cluster, job.model, allow, forbid), as_trained(job, cluster)
    result = search(job, cluster, top, techniques, on_step=on_step, headroom=headroom)
    if not result.ranked:
        raise nothing(job, cluster, techniques, result)
    papers = search(job, plain, 1, PAPERS_TECHNIQUES, headroom=headroom).ranked
    return TrainingPlan(
        name=name,
        job=job,
        cluster=cluster,
        cluster_name=cluster_name,
        takeaways=takeaways(job, plain),
        search=result,
        top=top,
        headroom=headroom,
        papers_best=papers[0] if papers else None,
        paper=paper_plan(job, plain),
        techniques=techniques,
        switched_on=[name for name, on in vars(cluster.software).items() if on and not getattr(plain.software, name)],
    )


def as_trained(job: TrainingJob, cluster: Cluster) -> TrainingJob:
    """The job with the fields that the cluster's program, if one is named, has by default in every layout."""
    defaults = load_program(cluster.program).defaults if cluster.named else {}
    fields = {name: value for name, value in defaults.items() if name in SET_FIELDS} | dict(job.fields)
    return replace(job, fields=tuple(fields.items()))


def nothing(job: TrainingJob, cluster: Cluster, techniques: Techniques, result: Search) -> ReproduceError:
    """Why no configuration was simulated: what is missing, in numbers, and the nearest fix."""
    if result.too_long:
        return NothingSelectedError(
            f"of {result.legal} legal configurations {result.too_large} do not fit, and {result.too_long} have "
            f"schedules too long to execute; try more GPUs, or fewer layers than {job.model.layers}"
        )
    least, near = least_memory(job, cluster, techniques), nearest_gpus(job, cluster, techniques)
    if least is None:
        sizes = sorted({d for *_, d in grids(job, cluster.gpus_per_node)})
        shown = ", ".join(map(str, sizes[:6])) + (", ..." if len(sizes) > 6 else "")
        return UsageError(
            f"batch={job.B} is divisible by no data-parallel size that {job.n} GPUs allow (d = {shown}); "
            f"needs a multiple of one of them; try batch={nearest_batch(job, cluster.gpus_per_node)}"
            + (f", or gpus={near}, the nearest number on which this batch fits" if near else "")
        )
    need, config = least
    usual = vars(ParallelConfig(B=1))
    chosen = {name: getattr(config.parallel, name) for name in ("p", "t", "d", "v", "b", "schedule", "recompute")}
    also = {name: getattr(config.parallel, name) for name in ("c", "e", "etp", "data_parallel", "sharded_optimizer")}
    chosen |= {name: value for name, value in also.items() if value != usual[name]}
    named = ", ".join(f"{name}={as_typed(value)}" for name, value in chosen.items())
    fix = (
        f"try gpus={near}, the nearest number on which it does"
        if near
        else "no number of GPUs helps; try a smaller model"
    )
    if found := advice(simulate(config, cluster), cluster):
        moved = found[0].fields.get("offload", "").split(",")
        allow = ",".join(name for name, what in OFFLOADS.items() if what in moved)
        fix += f", or what is not searched: {found[0].words}" + (f" (--allow {allow})" if allow else "")
    return NothingFitsError(named, job.n, need, cluster, fix)


def paper_plan(job: TrainingJob, cluster: Cluster) -> PaperPlan | None:
    """The configuration that the paper's Table 1 or 2 shows for exactly this job, if there is one."""
    for where, row, sizes in _printed(job.model):
        if (row["gpus"], row["B"], ()) == (job.n, job.B, job.fields):
            parallel = ParallelConfig(**sizes, d=job.n // (sizes["p"] * sizes["t"]), b=row["b"], B=job.B)
            estimate = simulate(TrainingConfig(job.model, parallel), cluster)
            return PaperPlan(where, estimate, row["throughput_per_gpu"] * 1e12)
    return None


def _printed(model: ModelConfig) -> Iterator[tuple[str, Mapping[str, Any], dict[str, Any]]]:
    """The paper's rows for a model: the table, the row, and how each of its replicas is parallelised."""
    if row := table_1_row(model):
        yield "Table 1", row, {name: row[name] for name in ("p", "t", "v", "data_parallel")}
    t = published.constants()["gpus_per_node"]  # Table 2 prints M = t*p; t is the node's, as the text has it
    for row in published.rows("table_zero3"):
        if row["scheme"] == "PTD-P" and named(f"{row['parameters_B']:g}b") == model:
            p = row["model_parallel_size"] // t
            yield "Table 2", row, {"p": p, "t": t, "data_parallel": data_parallel_kind(p)}
