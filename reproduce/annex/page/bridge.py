"""What the page asks Python for, in a browser's worker or here: each answer is plain JSON data.

The page computes nothing itself. `call` is the only entry: it takes the name of one of the functions in `ANSWERS` or
`ANSWERS_ON_CLUSTER` and its arguments as JSON, and returns {"answer": ...} or {"error": "one line"} as JSON. Nothing
here imports numpy, pandas or torch.
"""

import gc
import json
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from ptdp_core.schedules import names
from ptdp_core.simulator import cluster_path
from ptdp_core.simulator.cluster import CLUSTER_FOLDER, read_parameters
from reproduce.annex.page import (
    answers,
    bars,
    choices,
    form,
    lessons,
    limits,
    picture,
    scenarios,
    sensible,
    timelines,
    words,
)
from reproduce.experiment import catalog
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import quoted
from reproduce.experiment.judging import agreement
from reproduce.experiment.metrics import listed
from reproduce.experiment.sweep import Point
from reproduce.output.verdicts import plain, told
from reproduce.planning.amounts import amount
from reproduce.planning.models import find, main_names
from reproduce.planning.what_if import answer as what_if_answer
from reproduce.running import runner
from reproduce.running.fidelities import Plan, PointEvaluator, code_digest, evaluator
from reproduce.running.simulated import open_cluster
from results.records import Metric, PaperValue, PointResult
from results.records.errors import ReproduceError, UsageError

USUAL = "selene"  # the cluster of what is no paper's
ELSEWHERE = "h100"  # a cluster that the first view does not show
SHOWN_OF_QUANTITY = ("name", "heading", "axis", "shown", "factor")


def call(name: str, arguments: str) -> str:
    """The answer of a function to JSON arguments, as JSON; a user's mistake is an 'error' of one line.

    What is simulated is so on a `cluster`, by name, with `changes` of its numbers or, in its place, the `text` of a
    file; the functions get what `load_cluster` takes. Without a name an artifact is on its paper's own cluster.
    """
    try:
        given = json.loads(arguments)
        if name in ANSWERS:
            answer = ANSWERS[name](**given)
        else:
            chosen = given.pop("cluster", "") or _own(given.get("id"))
            file = _file(chosen, given.pop("changes", {}), given.pop("text", ""))
            answer = ANSWERS_ON_CLUSTER[name](**given, cluster=file)
        return json.dumps({"answer": answer})
    except (ReproduceError, ValueError, OverflowError) as error:
        return json.dumps({"error": str(error)})


def prepare() -> None:
    """Load all definitions and run the code once, on another machine, so that a snapshot of the interpreter has both.

    Schedules are compiled then. What the page shows is computed when it is asked for: no answer is kept.
    """
    for name in start()["clusters"]:
        open_cluster(name)
    for id in catalog.ids():
        shown = catalog.load(id)
        code_digest(shown, shown.fidelities[0])
    artifact(picture.FIGURE, ELSEWHERE)
    usual = scenarios.offered()[0]["configuration"]
    what_if(usual, ELSEWHERE, tokens="300B")
    choices.knobs(usual, ELSEWHERE)
    limits.limits(usual, ELSEWHERE)
    _evaluated.cache_clear()
    answers.kept.cache_clear()
    gc.collect()
    gc.freeze()  # these objects live as long as the page: later collections need not look through them
    gc.set_threshold(100_000)  # a timeline is a million small tuples without a cycle


def start() -> dict[str, Any]:
    """What the page offers: clusters, models, schedules, and the form of a configuration."""
    models = {name: model for name, model, missing in map(find, main_names()) if not missing}
    return {
        "clusters": {name: words.machine(name) for name in sorted(path.stem for path in CLUSTER_FOLDER.glob("*.toml"))},
        "usual": USUAL,
        "models": {name: asdict(model) for name, model in models.items()},
        "model_words": {name: words.model(name) for name in models},
        "schedules": {name: words.schedule(name) for name in names()},
        "fields": form.offered(),
        "metrics": [
            _fields(metric, "name", "factor") | {"heading": " ".join(metric.short.split()) or metric.heading}
            for metric in listed()
        ],
        "scenarios": scenarios.offered(),
        "lessons": lessons.offered(),
    }


def artifacts() -> dict[str, Any]:
    """The figures and tables that the page can draw. Loads all of them, which the first one need not wait for."""
    return {"artifacts": [_heading(catalog.load(id)) for id in catalog.ids()]}


def _heading(artifact: Artifact) -> dict[str, Any]:
    drawn = artifact.x_axis is not None
    return _fields(artifact, "id", "label", "title", "place", "paper") | {
        "fidelity": artifact.fidelities[0],
        "drawn": drawn,
    }


def _fields(shown: object, *names: str) -> dict[str, Any]:
    """Some of an object's values, by name."""
    return {name: getattr(shown, name) for name in names}


def _own(id: str | None) -> str:
    """The cluster of an artifact's paper, or the usual one."""
    return catalog.load(id).cluster if id else USUAL


def cluster(name: str, text: str = "", id: str | None = None) -> dict[str, Any]:
    """The numbers of a cluster: of a shipped one, by default an artifact's own, or of the text of a cluster file."""
    name = name or _own(id)
    file = _file(name, {}, text)
    numbers = [
        asdict(number) | {"words": form.number_words(name), "shown": form.prefixed(number)}
        for name, number in read_parameters(file).items()
    ]
    described = _described(file).get("description", "")
    return {"name": name, "description": described, "numbers": numbers}


def _called(cluster: str) -> str:
    """What people call a cluster: a shipped one by its name, a file by the name in it."""
    return str(_described(cluster).get("name")) if "/" in cluster else cluster


def _described(cluster: str) -> dict[str, Any]:
    return tomllib.loads(cluster_path(cluster).read_text(encoding="utf-8"))


def _file(name: str, changes: Mapping[str, float], text: str) -> str:
    """What `load_cluster` takes for a cluster: its name, or the path of a file with the changes or the text in it.

    Raises `ValueError` for a change of what is no number of a cluster, or out of its range.
    """
    if not changes and not text:
        return name
    if not text:
        parameters = read_parameters(name)
        lines = [f'name = "{name}, edited"', f'description = "{name} with changed numbers"', f'base = "{name}"']
        for key, value in changes.items():
            if key not in parameters:
                raise ValueError(f"{key}={value} is no number of a cluster; needs one of those listed")
            p = parameters[key]
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{key}={value!r} is no number; needs {p.low:g} to {p.high:g} {p.unit}")
            if not p.low <= value <= p.high:
                raise ValueError(f"{key}={value:g} lies outside its range; needs {p.low:g} to {p.high:g} {p.unit}")
            lines.append(f"{key} = {value!r}")
        text = "\n".join(lines)
    path = Path(tempfile.gettempdir()) / f"cluster-{sha256(text.encode()).hexdigest()[:16]}.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@lru_cache(maxsize=64)
def _evaluated(id: str, cluster: str) -> tuple[PointEvaluator, tuple[PointResult, ...]]:
    """An artifact's points at its first fidelity and scale, computed now."""
    evaluate = evaluator(runner.plan(catalog.load(id), Path(tempfile.gettempdir()), cluster=cluster))
    return evaluate, tuple(map(evaluate.evaluate, evaluate.plan.points))


def artifact(id: str, cluster: str) -> dict[str, Any]:
    """An artifact's points with what is said of them all; `claims` judges them."""
    evaluate, found = _evaluated(id, cluster)
    plan, shown = evaluate.plan, evaluate.plan.artifact
    points, notes = runner.told_points(evaluate, evaluate.results(found))
    ringed = any(shown.main.name in point.paper for point in plan.points)
    finding, gap = words.finding(points, shown.main.name, shown.x_axis) if shown.x_axis else ("", None)
    return _heading(shown) | {
        "description": shown.description,
        "finding": finding,
        "gap": gap,
        "fidelity": plan.fidelity,
        "cluster": _called(cluster) if evaluate.cluster_ref else None,
        "elsewhere": plan.elsewhere,
        "command": _command(plan, cluster),
        "quantities": [_fields(quantity, *SHOWN_OF_QUANTITY) for quantity in shown.quantities],
        "x": asdict(shown.x_axis) if shown.x_axis else None,
        "points": [*map(_point, points, plan.points)],
        "notes": list(notes),
        "near": words.near(points, shown.main.name),
        "reading": words.reading(points, shown.main.name, plan.fidelity, ringed, plan.elsewhere),
        "table": _table(shown, points, plan.fidelity),
        "dotted": [series for series, look in shown.looks.items() if look.get("linestyle") == ":"],
    }


@lru_cache(maxsize=64)
def claims(id: str, cluster: str) -> dict[str, Any]:
    """The claims of an artifact, judged on its points."""
    evaluate, found = _evaluated(id, cluster)
    _, judged, _ = runner.judge_points(evaluate, found)
    judges = {claim.id: claim.judge for claim in evaluate.plan.artifact.claims}
    return {
        "claims": [
            _fields(claim, "id", "place", "verdict", "explanation")
            | {"kind": words.KINDS[claim.verdict], "sentence": quoted(plain(claim.sentence), claim.place, "“”")}
            | {"shown": told(claim), "bar": bars.bar(claim, judges.get(claim.id))}
            for claim in judged
        ]
    }


def _table(shown: Artifact, points: Sequence[PointResult], fidelity: str) -> list[list[Any]]:
    """Headings and a row for each point: parameters, ours, the paper's, how far off; no column is empty."""

    def number(metric: Metric | PaperValue | None, quantity: Any) -> str:
        value = None if metric is None else metric.value
        return "" if value is None else quantity.show(value)

    first = shown.main
    ours_headed = [f"{each.heading} [{fidelity}]" for each in shown.quantities]
    theirs_headed = f"{first.heading} [paper]"
    rows: list[list[Any]] = [
        ["Series", "Point", *shown.columns.values(), *ours_headed, theirs_headed, "Off, %", "Agreement"]
    ]
    for point in points:
        ours, paper = point.metrics.get(first.name), point.paper.get(first.name)
        off = f"{100 * (ours.value / paper.value - 1):.1f}" if ours and ours.value and paper and paper.value else ""
        rows.append(
            [point.series, point.label, *(point.parameters.get(name, "") for name in shown.columns)]
            + [number(point.metrics.get(each.name), each) for each in shown.quantities]
            + [number(paper, first), off, point.reason or agreement(shown, point)]
        )
    kept = [any(row[i] not in ("", None) for row in rows[1:]) for i in range(len(rows[0]))]
    return [[cell for cell, keep in zip(row, kept, strict=True) if keep] for row in rows]


def _command(plan: Plan, cluster: str) -> str:
    """The command that gives the same in a terminal; numbers that were changed here are in no file there."""
    if not plan.elsewhere:
        return f"reproduce {plan.artifact.id}"
    return f"reproduce {plan.artifact.id} --cluster {'my.toml' if '/' in cluster else cluster}"


def _point(point: PointResult, planned: Point) -> dict[str, Any]:
    """A point as the page has it, with its published values on any cluster; on another nothing is held against them."""
    sure = {name: metric.interval for name, metric in point.metrics.items() if metric.interval is not None}
    return _fields(point, "series", "label", "status") | {
        "parameters": dict(point.parameters),
        "metrics": {name: metric.value for name, metric in point.metrics.items()},
        "intervals": {name: [interval.low, interval.high] for name, interval in sure.items()},
        "paper": {name: value.value for name, value in planned.paper.items()},
    }


def what_if(
    configuration: Mapping[str, Any],
    cluster: str,
    tokens: str = "",
    price: str = "",
    gpus: int | None = None,
    batch: int | None = None,
) -> dict[str, Any]:
    """A configuration simulated: what `reproduce simulate --json` says of it, and `answers.further`.

    `tokens` (as '300B') ask for the whole run, too, a `price` of a GPU hour for its cost. What is refused is told by
    field, with what could be asked in its place (`sensible.instead`). For another number of `gpus`, or another `batch`,
    it is the configuration with the `changes` that this takes, unless it is `refused` (`choices.chosen`).
    """
    if gpus is not None or batch is not None:
        found = choices.chosen(configuration, gpus, batch)
        if "refused" in found:
            return found
        return what_if({**configuration, **found["changes"]}, cluster, tokens, price) | found
    try:
        answer = answers.evaluated(configuration, cluster, tokens, price)
    except UsageError as error:
        answer = what_if_answer("", "invalid", str(error))
    if answer["status"] == "invalid":
        answers.opened(cluster)  # a machine that there is not is no configuration's mistake
        return answer | sensible.instead(configuration, tokens, price, str(answer["reason"]))
    helped: dict[str, Any] = {"helps": choices.helps(configuration, cluster)} if answer["status"] == "oom" else {}
    return answer | answers.further(configuration, cluster, answer, tokens) | helped


def compare(
    configuration: Mapping[str, Any], cluster: str, other: Mapping[str, Any], tokens: str = "", price: str = ""
) -> dict[str, Any]:
    """What `answers.compared` says of another configuration, with a cluster of its own, and this one."""
    file = _file(other.get("cluster") or USUAL, other.get("changes", {}), other.get("text", ""))
    before = {"configuration": other.get("configuration", {}), "cluster": file}
    return answers.compared(before, {"configuration": configuration, "cluster": cluster}, tokens, price)


ANSWERS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "start": start,
    "artifacts": artifacts,
    "cluster": cluster,
    "lesson": lessons.lesson,
    "amount": lambda text: {"number": amount(text) if text else None},
    "scheduled": choices.scheduled,
    "programmed": choices.programmed,
    "own": timelines.own,
}
ANSWERS_ON_CLUSTER: Mapping[str, Callable[..., dict[str, Any]]] = {
    "artifact": artifact,
    "claims": claims,
    "what_if": what_if,
    "knobs": choices.knobs,
    "limits": limits.limits,
    "changes": limits.changes,
    "modelled": sensible.modelled,
    "recipe": sensible.recipe,
    "compare": compare,
    "sweep": answers.sweep,
    "best": choices.best,
    "moment": timelines.moment,
    "timeline": timelines.timeline,
    "trace": timelines.trace,
}
