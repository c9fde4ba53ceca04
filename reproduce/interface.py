"""The Python interface, for notebooks and scripts: `import reproduce`, then these names as `reproduce.load` and so on.

    load       results as one tidy pandas DataFrame
    run        an artifact at a fidelity: what `reproduce ID` does
    simulate   training configurations of one's own: what `reproduce simulate` does
    plan       how to train a model on n GPUs: what `reproduce plan` does
    Record     what the last three return, with `.frame()` and `.figure()`

The guide is `docs/python.md`. What goes wrong raises `results.records.errors.ReproduceError`, whose text is one line
that says how to mend it.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.benchmark_list import BENCHMARKS
from ptdp_core import simulator
from ptdp_core.config import TrainingConfig
from ptdp_core.errors import ConfigurationError
from reproduce.annex import part
from reproduce.experiment import catalog
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.fidelity import PAPERS_CLUSTER
from reproduce.experiment.quantities import USUAL_BEYOND
from reproduce.experiment.sweep import Point, Scalar, Sweep
from reproduce.running import fidelities, runner
from reproduce.running.simulated import cluster_of, open_cluster
from results import records
from results.records import provenance, read_record
from results.records.errors import NothingSelectedError, UsageError, did_you_mean
from results.records.errors import ReproduceError as ReproduceError
from results.records.storage import DEFAULT_RESULTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from reproduce.planning.run_cost import TrainingRun

Place = str | os.PathLike[str]


class Record(records.Record):
    """The results of an artifact, a benchmark, a plan or a simulation, with methods that show them."""

    @classmethod
    def of(cls, record: records.Record) -> "Record":
        """The same record, with this class's methods."""
        return cls(**vars(record))

    def frame(self, shown_units: bool = False) -> "DataFrame":
        """The record as a tidy frame: one row per point and metric (columns: see `reproduce.output.columns`).

        Numbers are in base units, or in those that tables show (GB, teraFLOP/s, %).
        """
        from reproduce.output.frame import frame, in_shown_units

        table = frame(self)
        return in_shown_units(table, self._artifact) if shown_units else table

    def figure(
        self,
        style: str = "screen",
        font: str | None = None,
        width: str | float | None = None,
        points: Place | None = None,
    ) -> "Figure":
        """The record's figure, drawn anew, with the options of `reproduce plot`.

        `points` is a CSV file with points of one's own, which a line chart shows, too.

        In the style 'paper' or a venue's (acm, ieee, icml, neurips, sc) it is without the small print about where the
        numbers come from. The font is 'sans' or 'serif' (a venue's), the width 'column', 'page' or inches. Raises
        `UsageError` for another one, and if there is no figure (tables, plans, simulations).
        """
        from reproduce.output import figures, theme

        for value, known in ((style, theme.STYLES), (font, tuple(theme.FONTS))):
            if value is not None and value not in known:
                raise UsageError(f"{value!r} is unknown; there are {', '.join(known)}{did_you_mean(value, known)}")
        try:
            inches = None if width is None else theme.width_of(width)
        except ValueError as error:
            raise UsageError(str(error)) from None
        look = theme.look_of(style, font, inches)
        with theme.style(look):
            if self.kind == "benchmark":
                figure = part("bench", "benchmark_figures").draw(self)
            elif self._artifact is None or self._artifact.draw is None:
                raise UsageError(f"{self.id} has no figure; try .frame()")
            elif points is None:
                figure = figures.drawn(self._artifact, self)
            elif self._artifact.draw is figures.line_plot:
                path = Path(points)
                own = {path.stem: part("plot", "own_points").read_points(path, self._artifact, self)}
                figure = figures.overlay(self._artifact, {self.fidelity: self}, own)
            else:
                raise UsageError(f"{self.id} is no line chart; points need one; try fig_interleaved")
            if look.captioned:
                theme.take_origin(figure)
            return figure

    def _repr_html_(self) -> str:
        """What a notebook shows of the record: its table."""
        from reproduce.output.tables import html

        return html(self, self._artifact)

    @property
    def _artifact(self) -> Artifact | None:
        """The artifact of the record, as its scale shows it; None for one of a benchmark, a plan or a simulation."""
        return catalog.load(self.id).at(self.scale) if self.id in catalog.ids() else None


def load(what: Place | Iterable[Place], results: Place = DEFAULT_RESULTS) -> "DataFrame":
    """Results as one tidy frame: one row per point and metric (columns: see `reproduce.output.columns`).

    `what` is a record's file, a folder with records anywhere below it, the id of an artifact or a benchmark that has
    records below the folder `results`, or several of these. Raises `UsageError` for what is none of them,
    `NothingSelectedError` where there is no record, `InvalidResultsError` for a file that holds none.
    """
    from reproduce.output.frame import concatenated, frame

    names = [what] if isinstance(what, str | os.PathLike) else list(what)
    paths = dict.fromkeys(path for name in names for path in _records(name, Path(results)))
    return concatenated([frame(read_record(path)) for path in paths])


def _records(name: Place, results: Path) -> list[Path]:
    path, known = Path(name), (*catalog.ids(), *BENCHMARKS)
    if name in known:
        records = sorted(path for path in results.rglob(runner.RECORD) if name in path.relative_to(results).parts)
        hint = f"reproduce bench run {name}" if name in BENCHMARKS else f"reproduce.run({name!r})"
    elif path.exists():
        records, hint = sorted(path.rglob(runner.RECORD)) if path.is_dir() else [path], "reproduce.run(...)"
    else:
        raise UsageError(f"{str(name)!r} is no artifact, benchmark, file or folder{did_you_mean(str(name), known)}")
    if not records:
        raise NothingSelectedError(f"{name} has no record in {results}; try {hint}")
    return records


def run(
    id: str,
    fidelity: str | None = None,
    scale: str | None = None,
    cluster: str | None = None,
    results: Place = DEFAULT_RESULTS,
    fresh: bool = False,
) -> Record:
    """Run an artifact and return its record; files are written below `results` as `reproduce ID` writes them.

    Fidelity and scale are the artifact's first unless given, `cluster` is its paper's, or a name or a .toml file.
    Points that are there already are reused unless `fresh`. Raises `ReproduceError` and `StorageError`.
    """
    plan = runner.plan(catalog.load(id), Path(results), fidelity, scale, cluster)
    command = ["reproduce", id, "--fidelity", plan.fidelity, "--scale", plan.scale, "--cluster", plan.cluster]
    return Record.of(runner.run(plan, command, fresh, exported=True).record)


def simulate(*configurations: Mapping[str, Any], cluster: str = PAPERS_CLUSTER, **shared: Any) -> Record:
    """Simulate training configurations on a cluster: a record with a point for each.

    A configuration has the keys of `ptdp_core.config` (layers, hidden, heads, p, t, d, v, b, B, ...), or a `model` by
    name ('llama-3-8b') in place of its fields, and may have a `label`, a training `program` by name, and `lengths` of
    samples that are packed, a file or a list. What all have in common can be given by keyword; without any mapping the
    keywords are the configuration. One that cannot be run, or does not fit into memory, is a point with status
    'invalid' or 'oom' and the reason, with what would fit. The notes say what of a named model is not modelled, and
    what became of samples. Raises `UsageError` for an unknown key, cluster or program.
    """
    from ptdp_core.simulator.cluster import PROGRAM
    from ptdp_core.simulator.programs import load_program
    from reproduce.experiment.sweep import check_keys
    from reproduce.planning import lengths
    from reproduce.planning.advice import advice, to_try
    from reproduce.planning.models import with_model_fields
    from reproduce.planning.what_if import unmodelled

    points, notes = [], []
    for number, configuration in enumerate(configurations or ({},), 1):
        asked = {**shared, **configuration}
        parameters = with_model_fields(asked)
        program, samples = parameters.pop(PROGRAM, None), parameters.pop("lengths", None)
        if left_out := unmodelled(asked):
            notes.append(f"configuration {number}: not modelled: {left_out}")
        try:
            if program is not None:
                parameters = load_program(str(program)).with_defaults(parameters)
            check_keys(parameters)
            if samples is not None:
                config, packed = lengths.applied(TrainingConfig.from_plain(parameters), lengths.read(samples))
                parameters |= config.to_plain()
                notes.append(f"configuration {number}: {packed}")
        except ConfigurationError as error:
            raise UsageError(f"configuration {number}: {error}") from None
        label = str(parameters.pop("label", f"configuration {number}"))
        parameters |= {} if program is None else {PROGRAM: program}
        points.append(Point(f"configuration_{number}", "", label, parameters))
    usual, _ = open_cluster(cluster)

    def advised(point: records.PointResult) -> records.PointResult:
        """What does not fit, with the cheapest changes that do."""
        if point.status != "oom":
            return point
        model = cluster_of(point.parameters, usual)
        found = advice(simulator.simulate(TrainingConfig.from_plain(point.parameters), model), model)
        return replace(point, reason=f"{point.reason}; {to_try(found)}")

    sweeps = {"paper": Sweep(lambda: tuple(points))}
    artifact = Artifact("simulate", "Training configurations", "", USUAL_BEYOND, sweeps)
    evaluator = fidelities.evaluator(runner.plan(artifact, Path(), cluster=cluster))
    started = datetime.now(UTC)
    return Record(
        kind="comparison",
        id=artifact.id,
        title=artifact.title,
        paper=None,
        fidelity="simulated",
        scale="own",
        state="complete",
        points=tuple(map(advised, evaluator.results([evaluator.evaluate(point) for point in points]).points)),
        notes=tuple(notes),
        provenance=provenance.collect(
            ["reproduce", "simulate"], started, cluster=evaluator.cluster_ref, code_digest=evaluator.code_digest
        ),
    )


def plan(
    model: str | None = None,
    gpus: int | None = None,
    batch: int | str | None = None,
    cluster: str = PAPERS_CLUSTER,
    top: int = 3,
    run: "TrainingRun | None" = None,
    allow: Iterable[str] = (),
    forbid: Iterable[str] = (),
    program: str | None = None,
    **sizes: Scalar,
) -> Record:
    """How to train a model on `gpus` GPUs with `batch` sequences per iteration: the `top` configurations as a record.

    The model is one of the paper's ('175b'), whose Table 1 may give GPUs and batch, a later one ('llama-3-70b'), or
    one's own: the fields of `ptdp_core.config.ModelConfig`. A `batch` may be tokens, as '4M', and a training `program`
    stands in place of the cluster's. With a `run` the points have its days, GPU hours, cost and energy, too.
    `allow` and `forbid` name what is searched, as on the command line. The notes say what the paper's takeaways choose.
    Raises `UsageError`, and `NothingSelectedError` if nothing fits into memory.
    """
    from reproduce.planning.models import find
    from reproduce.planning.plan import MODEL_FIELDS, make_plan, request

    if unknown := sizes.keys() - set(MODEL_FIELDS):
        raise UsageError(f"unknown size {min(unknown)!r}; needs some of {', '.join(MODEL_FIELDS)}")
    plan_record = part("plan", "plan_record")
    started = datetime.now(UTC)
    cluster_model, reference = open_cluster(cluster, program)
    name, job = request({"model": model, "gpus": gpus, "batch": batch, "top": top, **sizes})
    training_plan = replace(
        make_plan(name, job, cluster_model, reference.name, top, allow=allow, forbid=forbid),
        run=run,
        not_modelled=find(model).unmodelled(job.model.seq) if model else "",
    )
    origin = provenance.collect(
        ["reproduce", "plan"], started, cluster=reference, code_digest=plan_record.code_digest()
    )
    return Record.of(plan_record.to_record(training_plan, origin))
