"""The sections of the report's page: an artifact with its figure, table, claims and provenance; accuracy; plans."""

import shlex
from collections.abc import Sequence

from benchmarks.records import ClaimResult, PointResult, Record
from benchmarks.records.errors import InvalidResultsError
from reproduce.experiment.artifact import NOT_IN_PAPER
from reproduce.output.html.markup import Content, Html, element, png_image
from reproduce.output.html.report import FIGURE, Entry, Report, Result, link
from reproduce.output.html.tables import (
    data_table,
    heading,
    number_text,
    origin,
    points_table,
    tag,
    verdict_kind,
)
from reproduce.output.latex import plain
from reproduce.output.tables import failures, origin_of

KINDS_OF_FILES = {
    "record.json": "JSON",
    "table.csv": "CSV",
    "table.md": "Markdown",
    "table.tex": "LaTeX",
    "figure.pdf": "figure (PDF)",
    "figure.png": "figure (PNG)",
    "timelines.pdf": "time lines (PDF)",
    "timelines.png": "time lines (PNG)",
    "sensitivity.pdf": "sensitivity (PDF)",
    "sensitivity.png": "sensitivity (PNG)",
    "trace.json": "trace (open in ui.perfetto.dev)",
}


def entry_section(report: Report, entry: Entry) -> Html:
    """An artifact's section: its results, or the command that makes them."""
    label = entry.label if entry.artifact is None else f"{entry.label}: {entry.title}"
    body: list[Content] = [element("h2", label)]
    if entry.artifact:
        of_paper = " of the paper" if entry.artifact.section != NOT_IN_PAPER else ""
        where = f"{entry.artifact.place}{of_paper} · "
        body.append(element("p", where, element("code", entry.id), class_="soft small"))
        body.append(element("p", entry.artifact.description))
    if not entry.results:
        text = "Not run yet. Run it with" if entry.artifact else "Not available in this version of the suite."
        body.append(element("p", text))
        body.append(element("pre", entry.command) if entry.artifact else None)
    for result in entry.results:
        if len(entry.results) > 1:
            body.append(element("h3", result.record.fidelity.capitalize()))
        body.append(_result(report, entry, result))
    return element("section", *body, id=entry.id)


def _result(report: Report, entry: Entry, result: Result) -> Content:
    record, artifact = result.record, result.artifact
    parts: list[Content] = []
    if artifact and record.scale != artifact.scales[0]:
        parts.append(element("p", f"{artifact.title}. {artifact.description}"))
    if record.state != "complete":
        parts.append(element("p", f"Partial: the run was interrupted. Resume it with {entry.command}", class_="note"))
    if result.outdated:
        parts.append(
            element(
                "p", f"Made by other sources than this version's: run {entry.command} again to be sure.", class_="note"
            )
        )
    parts.append(figure(result, f"{entry.label}: {entry.title}", f"{entry.label}, {origin_of(record)}"))
    if artifact:
        parts.append(points_table(artifact, result))
    if without := failures(record):
        parts.append(element("div", element("ul", *(element("li", text) for text in without)), class_="note"))
    if record.notes:
        parts.append(element("ul", *(element("li", note) for note in record.notes), class_="plain small"))
    if record.claims:
        parts += [element("h3", "Claims"), *(_claim(claim) for claim in record.claims)]
    return [*parts, _files(report, result), _provenance(record)]


def figure(result: Result, alt: str, caption: str, name: str = FIGURE) -> Html | None:
    """A figure of the result, inside the page; None if there is none. Raises `InvalidResultsError` if it is none."""
    path = result.folder / name
    if path not in result.files:
        return None
    try:
        image = png_image(path.read_bytes(), alt)
    except (OSError, ValueError) as error:
        raise InvalidResultsError(f"cannot read {path}: {error}") from None
    return element("figure", image, element("figcaption", caption))


def _claim(claim: ClaimResult) -> Html:
    kind = verdict_kind(claim.verdict)
    tolerance = f"; tolerance: {claim.tolerance}" if claim.tolerance else ""
    numbers = [
        element("li", f"{name.replace('_', ' ')}: {number_text(number)} ", origin(number.origin))
        for name, number in claim.numbers.items()
    ]
    return element(
        "div",
        element(
            "p",
            tag(claim.verdict, kind),
            f" “{plain(claim.sentence)}” ",
            element("span", claim.place, class_="soft small"),
        ),
        element("p", claim.explanation, class_="why"),
        element("p", f"{claim.id}: needs fidelity {claim.fidelity} or better{tolerance}", class_="soft small"),
        element("details", element("summary", "numbers"), element("ul", *numbers, class_="plain")) if numbers else None,
        class_=f"claim {kind}".strip(),
    )


def _files(report: Report, result: Result) -> Html:
    order = {name: i for i, name in enumerate(KINDS_OF_FILES)}
    files = sorted(result.files, key=lambda path: (order.get(path.name, len(order)), path.name))
    links = [[element("a", KINDS_OF_FILES.get(path.name, path.name), href=link(report, path)), " "] for path in files]
    return element("p", "Files: ", *links, class_="files")


def _provenance(record: Record) -> Html:
    made, host = record.provenance, record.provenance.host
    changes = {True: ", with changes", False: "", None: ", unknown whether with changes"}[made.dirty]
    machine = [host.cpu, f"{host.logical_cores} cores" if host.logical_cores else None, host.os, host.machine]
    machine += [f"{host.gpu_count} x {', '.join(host.gpus)}"] if host.gpus else []
    memory = f"{host.memory_bytes / 1e9:.0f} GB" if host.memory_bytes else None
    rows = {
        "command": element("code", shlex.join(made.command)),
        "started": f"{made.started}, took {made.duration_s:.1f} s",
        "commit": f"{made.commit}{changes}" if made.commit else "not known",
        "sources": made.code_digest and f"SHA-256 {made.code_digest[:16]}…",
        "cluster": made.cluster and f"{made.cluster.name}, SHA-256 {made.cluster.digest[:16]}…",
        "scale": f"{record.scale}; {record.state}",
        "seed": None if made.seed is None else str(made.seed),
        "machine": ", ".join(part for part in (*machine, memory) if part),
        "versions": ", ".join(f"{name} {version}" for name, version in made.versions.items()),
    }
    shown = [[element("dt", name), element("dd", text)] for name, text in rows.items() if text]
    return element("details", element("summary", "Provenance"), element("dl", *shown))


SCORES = ("points", "mean_error", "bias", "worst_error", "rank_correlation")
FIGURES = {"figure": "Predicted against published", "sensitivity": "How each parameter of the cluster matters"}


def accuracy_section(report: Report, result: Result) -> Html:
    """What `reproduce accuracy` found: the scores, next to the naive baselines."""
    scores = [point for point in result.record.points if point.series == "score"]
    found = dict.fromkeys(name for point in scores for name in point.metrics)
    names = sorted(found, key=lambda name: SCORES.index(name) if name in SCORES else len(SCORES))
    origins = {name: point.metrics[name].origin for point in scores for name in point.metrics}
    headings: list[Content] = ["points of"]
    headings += [heading(name.replace("_", " "), "", origins[name]) for name in names]
    rows: list[list[Content]] = [[point.label, *(_score(point, name) for name in names)] for point in scores]
    figures = [
        figure(result, path.stem, f"{FIGURES.get(path.stem, path.stem)}, {result.record.fidelity}", path.name)
        for path in result.files
        if path.suffix == ".png"
    ]
    return element(
        "section",
        element("h2", "Accuracy of the simulator"),
        element(
            "p", "Every simulated point against every published one; baselines are fitted to the very same points."
        ),
        data_table(headings, rows, ["short", *["number"] * len(names)]) if scores else None,
        element("div", *figures, class_="figures"),
        element("ul", *(element("li", note) for note in result.record.notes), class_="plain small"),
        _files(report, result),
        _provenance(result.record),
        id="accuracy",
    )


def _score(point: PointResult, name: str) -> str:
    metric = point.metrics.get(name)
    if metric is None or metric.value is None:
        return "–"
    if metric.unit == "count":
        return f"{metric.value}"
    if name == "rank_correlation":
        return f"{metric.value:.3f}"
    return f"{metric.value:+.1%}" if name in ("bias", "worst_error") else f"{metric.value:.1%}"


def plans_section(report: Report, plans: Sequence[Result]) -> Html:
    """What `reproduce plan` found, one table each."""
    return element(
        "section",
        element("h2", "Plans"),
        element("p", "How to train a model on n GPUs: the paper's takeaways and the best by simulation."),
        *(_plan(report, plan) for plan in plans),
        id="plans",
    )


PLAN_COLUMNS = ("rank", "p", "t", "d", "v", "b", "recompute")
PLAN_METRICS = {
    "iteration_time": ("iteration", "s", 1.0, 3),
    "throughput_per_gpu": ("throughput", "teraFLOP/s", 1e12, 1),
    "bubble_fraction": ("bubble", "%", 0.01, 1),
    "peak_memory": ("memory", "GB", 1e9, 1),
    "pipeline_traffic": ("p2p sent", "GB", 1e9, 1),
    "tensor_traffic": ("tensor sent", "GB", 1e9, 1),
    "data_traffic": ("data sent", "GB", 1e9, 1),
}


def _plan(report: Report, plan: Result) -> Html:
    headings: list[Content] = ["which", *PLAN_COLUMNS]
    headings += [heading(name, unit, plan.record.fidelity) for name, unit, _, _ in PLAN_METRICS.values()]
    rows: list[list[Content]] = []
    for point in plan.record.points:
        numbers = [_shown(point, name, factor, digits) for name, (_, _, factor, digits) in PLAN_METRICS.items()]
        rows.append([point.series, *(str(point.parameters.get(name)) for name in PLAN_COLUMNS), *numbers])
    numeric = ["short" if name == "recompute" else "number" for name in PLAN_COLUMNS]
    return element(
        "div",
        element("h3", plan.record.title),
        data_table(headings, rows, ["short", *numeric, *["number"] * len(PLAN_METRICS)]),
        element("ul", *(element("li", note) for note in plan.record.notes), class_="plain small"),
        _files(report, plan),
        _provenance(plan.record),
    )


def _shown(point: PointResult, name: str, factor: float, digits: int) -> str:
    metric = point.metrics.get(name)
    return "–" if metric is None or metric.value is None else f"{metric.value / factor:.{digits}f}"
