"""What the page says of a configuration beyond `reproduce simulate`: its parts, what differs from another, sweeps."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import prod
from typing import Any

from ptdp_core.config import TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.simulator import Cluster, cluster_path, load_cluster
from ptdp_core.simulator.cluster import read_parameters, with_program
from ptdp_core.simulator.programs import load_program
from reproduce.annex.page import form, words
from reproduce.experiment.metrics import METRICS, listed
from reproduce.planning.amounts import amount
from reproduce.planning.run_cost import TrainingRun
from reproduce.planning.what_if import evaluate

USEFUL = ("forward", "backward", "embedding_and_logits")  # phases that training cannot do without
COMPARED = ("iteration_time", "model_flops_utilization", "peak_memory", "tokens_per_s", "idle_fraction")
GB = 1e9
# Facts of an answer or its run: the metric, what it is called, its unit, and how many of its own units that is.
FACTS = (
    ("iteration_time", "An iteration", "s", 1),
    ("model_flops_utilization", "Of peak (MFU)", "%", 0.01),
    ("cost", "Cost", "USD", 1),
    ("energy", "Energy", "GWh", 3.6e12),
    ("tokens_per_s_per_gpu", "Tokens a second", "a GPU", 1),
    ("sequences_per_s", "Sequences", "a second", 1),
)
SWEPT = 14  # configurations of a sweep at most
STEADY = 5e-4  # a change by less is told as none


def opened(cluster: str, program: str | None = None) -> Cluster:
    """A shipped cluster, or that of a file, whose name is its content's digest, with a program on it."""
    loaded = load_cluster(cluster)
    return with_program(loaded, program) if program else loaded


def evaluated(configuration: Mapping[str, Any], cluster: str, tokens: str = "", price: str = "") -> dict[str, Any]:
    """What `reproduce simulate --json` says of a configuration, but for its causes of waiting; kept for comparisons."""
    return kept(json.dumps(said(configuration)), cluster, tokens, price)


@lru_cache(maxsize=64)
def kept(configuration: str, cluster: str, tokens: str, price: str) -> dict[str, Any]:
    run = TrainingRun(amount(tokens), price=amount(price) if price else None) if tokens else None
    return evaluate(json.loads(configuration), 1, cluster, run=run, bubble_times=False)


def said(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without the schedule '' and the program '', by which the page means the usual ones."""
    return {name: value for name, value in configuration.items() if value != "" or name not in ("schedule", "program")}


def filled(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with the defaults of the fields that it does not name: its program's, then the usual ones."""
    given = said(configuration)
    program = load_program(given["program"]).defaults if "program" in given else {}
    usual = {name: field["default"] for name, field in form.offered().items()}
    return {**usual, **program, **configuration}


def config_of(configuration: Mapping[str, Any]) -> TrainingConfig:
    """The configuration with what its program fills in. Raises `ConfigurationError`, also for what that does not do."""
    given = said(configuration)
    name = given.pop("program", None)
    if name is None:
        return TrainingConfig.from_plain(given)
    program = load_program(name)
    config = TrainingConfig.from_plain(program.with_defaults(given))
    program.check(config)
    return config


def illegal(configuration: Mapping[str, Any]) -> str:
    """Why a configuration is not legal; '' if it is."""
    try:
        config_of(configuration)
    except ConfigurationError as error:
        return str(error)
    return ""


def further(configuration: Mapping[str, Any], cluster: str, answer: Mapping[str, Any], tokens: str) -> dict[str, Any]:
    """What the page says besides of a configuration that was simulated: `reproduce simulate` leaves it to the reader.

    - `capacity`: bytes of a GPU that a training run can fill; `per_node`: GPUs of a node
    - `phases`, `memory`: the parts of an iteration in seconds and of the peak memory in GB
    - `headline`: the one number with its unit, the words before it, and its interval; `doubt`: whose interval it is
    - `sizes`: those of the layout, and the layers
    - `facts`: what else is told, each with value, unit, and interval; `brief`: share of the peak and memory
    """
    if answer["iteration_time"] is None:
        return {}
    program, settings = said(configuration).get("program"), filled(configuration)
    loaded = opened(cluster, program)
    useful = sum(answer["phase_times"][phase] for phase in USEFUL) / answer["iteration_time"]
    over = (answer["peak_memory"] - loaded.usable_memory) / GB
    used = f"{words.figures(answer['peak_memory'] / GB)} of {words.figures(loaded.usable_memory / GB)} GB"
    fits = f"it fits, {words.figures(-over)} GB to spare" if over <= 0 else f"{words.figures(over)} GB too much"
    whose = f": {load_program(program).title}, where its runs were scored, else the widest of all" if program else ""
    known = "iteration_time" in (answer["intervals"] or {})
    return {
        "capacity": loaded.usable_memory,
        "per_node": loaded.gpus_per_node,
        "phases": words.parts(answer["phase_times"], 1, words.phase),
        "memory": words.parts(answer["memory_bytes"], GB, lambda name: name.replace("_", " ")),
        "headline": _headline(answer, over, tokens),
        "doubt": f"9 of 10 real runs are expected in the band{whose or ', of programs whose runs were scored'}."
        if known
        else "No interval: no runs like these were scored on such a machine.",
        "sizes": {name: settings[name] for name in ("p", "t", "c", "d", "b", "B", "layers")},
        "facts": _facts(answer),
        "brief": f"{100 * answer['model_flops_utilization']:.0f}% · {used}",
        "notes": [f"{useful:.0%} trains the model", fits, f"{used} are needed".replace(" of ", " GB of ")],
    }


def _headline(answer: Mapping[str, Any], over: float, tokens: str) -> dict[str, Any]:
    run, seconds = answer.get("run"), answer["iteration_time"]
    if answer["status"] == "oom":
        return {"words": "The fullest GPU needs", "value": f"+{words.figures(over)}", "unit": "GB too much"}
    if run is None:
        value, ends, told = seconds, (answer["intervals"] or {}).get("iteration_time"), ("An iteration takes", "s")
    else:
        size = tokens.replace("T", " trillion").replace("B", " billion")
        value, ends, told = (
            run["run_time"],
            run["intervals"].get("run_time"),
            (f"Training on {size} tokens takes", "days"),
        )
    return {"words": told[0], "value": words.figures(value), "unit": told[1], "now": value, "interval": ends}


def _facts(answer: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Four facts: seconds and share of the peak, cost and energy if a run is asked for, else what is done a second."""
    rows = []
    for name, label, unit, factor in FACTS:
        of = answer if name in answer else answer.get("run") or {}
        if of.get(name) is not None:
            ends = (of["intervals"] or {}).get(name)
            rows.append((label, words.figures(of[name] / factor), unit, words.between(ends, factor)))
    return rows[:4]


def compared(before: Mapping[str, Any], after: Mapping[str, Any], tokens: str = "", price: str = "") -> dict[str, Any]:
    """One kept and the one shown: the fields that differ, the metrics of both, and what makes the difference.

    A configuration is {"configuration": ..., "cluster": ...}. `tokens` and `price` change nothing of it, but answers
    that are there with them are used. `ends` are the seconds of both, `parts` lead from the shown one's to the other's.
    """
    old, new = (evaluated(each["configuration"], each["cluster"], tokens, price) for each in (before, after))
    differ = [*differences(before, after)]
    kept, shown = (each["phase_times"] or {} for each in (old, new))
    ends = [sum(shown.values()), sum(kept.values())]
    gains = {name: kept.get(name, 0.0) - seconds for name, seconds in shown.items()}
    large = sorted((name for name in gains if abs(gains[name]) > 0.002 * ends[0]), key=lambda name: -abs(gains[name]))
    parts = words.parts({name: gains[name] for name in large}, 1, words.phase)
    more = ends[1] - ends[0]
    same = abs(more) < 0.005 * ends[0]
    why = "" if same or not parts else f", for {' and '.join(part['label'] for part in parts[:2])}"
    takes = "as long" if same else f"{words.figures(abs(more))} s {'longer' if more > 0 else 'less'}"
    told = [f"{each['label']} {each['values'][1]}, kept {each['values'][0]}" for each in differ]
    statuses = [each["reason"] or each["status"] for each in (old, new)]
    if statuses[0] != statuses[1]:
        told.append(f"shown: {statuses[1]}; kept: {statuses[0]}")
    return {
        "differences": differ,
        "heading": f"The one you kept takes {takes}{why}" if differ else "Kept: now change something",
        "note": f"Seconds of an iteration, from the layout shown to the one kept. {'; '.join(told)}",
        "ends": ends,
        "parts": parts,
        "metrics": [_row(name, old[name], new[name]) for name in COMPARED],
    }


def _row(name: str, old: float | None, new: float | None) -> tuple[str, str, str, str]:
    """A metric in the table of a comparison: what it is, the one shown, the one kept, and the change."""
    return METRICS[name].heading, _shown(name, new), _shown(name, old), _change(old, new)


def _shown(name: str, value: float | None) -> str:
    return "–" if value is None else METRICS[name].show(value)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every field, and every number of the cluster, that is not the same in both, with both values."""
    settings = [filled(each["configuration"]) for each in (before, after)]
    for name, label in form.LABELS.items():
        old, new = (setting.get(name) for setting in settings)
        if old != new:
            yield {"name": name, "label": label.words, "values": [form.shown(name, old), form.shown(name, new)]}
    if before["cluster"] == after["cluster"]:
        return
    names = [_machine(each["cluster"]) for each in (before, after)]
    if names[0] != names[1]:
        yield {"name": "cluster", "label": "Machine", "values": names}
        return
    old_numbers, new_numbers = (read_parameters(each["cluster"]) for each in (before, after))
    for name, number in new_numbers.items():
        if name in old_numbers and old_numbers[name].value != number.value:
            shown = [form.number_shown(entry) for entry in (old_numbers[name], number)]
            yield {"name": name, "label": form.number_words(name), "values": shown}


def _machine(cluster: str) -> str:
    """What a cluster is called, however its numbers may have been changed: a file of one's own by its base, if any."""
    if "/" not in cluster:
        return cluster
    described = tomllib.loads(cluster_path(cluster).read_text(encoding="utf-8"))
    return str(described.get("base") or described.get("name"))


def _change(before: float | None, after: float | None) -> str:
    """The change in percent; empty where one of the values is not known."""
    if not before or after is None:
        return ""
    change = after / before - 1
    return "same" if abs(change) < STEADY else f"{change:+.1%}".replace("-", "\N{MINUS SIGN}")


GPUS = ("p", "t", "c", "d")  # the sizes whose product is the number of GPUs
ADJUSTED = {"p": "d", "t": "d", "c": "d", "d": "p"}  # what is changed with one of them, so that it stays the same


def sweep(configuration: Mapping[str, Any], cluster: str, field: str) -> dict[str, Any]:
    """The configuration simulated with other values of one field: those that are legal, at most `SWEPT` of them.

    The number of GPUs stays what it is: with p, t or c the data-parallel size changes, with d the pipeline's. `changes`
    are the fields of a point that are others. Raises `ValueError` for a field that there is not.
    """
    if field not in form.LABELS:
        raise ValueError(f"sweep={field} is no field; needs one of {', '.join(form.LABELS)}")
    points = []
    for value in _thinned(_legal(configuration, field), configuration.get(field)):
        changed = changes(configuration, field, value)
        answer = evaluated({**configuration, **changed}, cluster)
        if answer["iteration_time"] is not None:
            metrics = {metric.name: answer[metric.name] for metric in listed()}
            points.append({"value": value, "status": answer["status"], "changes": changed, **metrics})
    label = " ".join(filter(None, (form.LABELS[field].words, form.LABELS[field].letter)))
    if field in GPUS:
        label += f" ({ADJUSTED[field]} with it, on {gpus(configuration):,} GPUs)"
    return {"field": field, "label": label, "points": points}


def gpus(configuration: Mapping[str, Any]) -> int:
    settings = filled(configuration)
    return prod(int(settings[name]) for name in GPUS)


def changes(configuration: Mapping[str, Any], field: str, value: Any) -> dict[str, Any]:
    """The fields that change with one of them: a size of the layout takes another with it, or n would change.

    A size that does not divide n with the others makes the other one 0, which is not legal.
    """
    if field not in GPUS:
        return {field: value}
    other, n = ADJUSTED[field], gpus(configuration)
    rest = value * prod(int(filled(configuration)[name]) for name in GPUS if name not in (field, other))
    return {field: value, other: 0 if n % rest else n // rest}


def _legal(configuration: Mapping[str, Any], field: str) -> list[Any]:
    """The values worth trying of a field that make a legal configuration, in their order."""
    definition = form.offered()[field]
    if definition["choices"]:
        values: list[Any] = list(definition["choices"])
    elif isinstance(definition["default"], bool):
        values = [False, True]
    else:
        now = filled(configuration)[field] or 1
        doubled = [base << k for base in (1, 3) for k in range(13)]
        around = [now * k // 4 for k in (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)]
        values = sorted({*range(1, 17), *doubled, *around} - {0})
    return [value for value in values if not illegal({**configuration, **changes(configuration, field, value)})]


def _thinned(values: list[Any], now: Any) -> list[Any]:
    """At most `SWEPT` of the values, the present one and its neighbours among them."""
    if len(values) <= SWEPT:
        return values
    near = values.index(now) if now in values else 0
    start = max(0, min(near - SWEPT // 2, len(values) - SWEPT))
    return values[start : start + SWEPT]
