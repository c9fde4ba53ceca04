"""What the page says of a configuration beyond `reproduce simulate`: what limits it, what changed, and sweeps."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import prod
from typing import Any

from ptdp_core.config import TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.formulas import parameters
from ptdp_core.simulator import cluster_path
from ptdp_core.simulator.cluster import read_parameters
from reproduce.annex.page import form, words
from reproduce.experiment.metrics import METRICS
from reproduce.planning.amounts import amount
from reproduce.planning.run_cost import TrainingRun
from reproduce.planning.what_if import evaluate
from reproduce.running.simulated import open_cluster

USEFUL = ("forward", "backward", "embedding_and_logits")  # phases that training cannot do without
SWEEPABLE = ("iteration_time", "model_flops_utilization", "peak_memory", "tokens_per_s_per_gpu")
TOLD = ("iteration_time", "model_flops_utilization", "peak_memory")  # metrics in a sentence about a change
SWEPT = 14  # configurations of a sweep at most
STEADY = 5e-4  # a change by less is told as none


def evaluated(
    configuration: Mapping[str, Any], cluster: str, tokens: str = "", price: str = "", sensitivity: bool = False
) -> dict[str, Any]:
    """What `reproduce simulate --json` says of a configuration; kept, because it is compared with the next one."""
    return _kept(json.dumps(without_default_schedule(configuration)), cluster, tokens, price, sensitivity)


@lru_cache(maxsize=64)
def _kept(configuration: str, cluster: str, tokens: str, price: str, sensitivity: bool) -> dict[str, Any]:
    run = TrainingRun(amount(tokens), price=amount(price) if price else None) if tokens else None
    return evaluate(json.loads(configuration), 1, cluster, run=run, sensitivity=sensitivity)


def without_default_schedule(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without the schedule '', by which the page means the default one."""
    return {name: value for name, value in configuration.items() if (name, value) != ("schedule", "")}


def further(configuration: Mapping[str, Any], cluster: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """What the page says besides of a configuration that was simulated: `reproduce simulate` leaves it to the reader.

    - `capacity`: bytes of a GPU that a training run can fill; `per_node`: GPUs of a node
    - `phases`, `memory`: the parts of an iteration and of the peak memory, with what people call them
    - `limit`: a sentence about the largest phase that does not train the model
    - `sizes`: what follows from the fields, in words
    """
    if answer["iteration_time"] is None:
        return {}
    loaded, _ = open_cluster(cluster)
    parts = answer["phase_times"]
    useful = sum(parts[phase] for phase in USEFUL) / answer["iteration_time"]
    largest = max((phase for phase in parts if phase not in USEFUL), key=lambda phase: parts[phase])
    label, share = words.phase(largest), parts[largest] / answer["iteration_time"]
    config = TrainingConfig.from_plain(without_default_schedule(configuration))
    return {
        "capacity": loaded.usable_memory,
        "per_node": loaded.gpus_per_node,
        "phases": [
            {"name": phase, "label": words.phase(phase), "seconds": seconds} for phase, seconds in parts.items()
        ],
        "memory": [
            {"name": part, "label": part.replace("_", " "), "bytes": size}
            for part, size in answer["memory_bytes"].items()
        ],
        "limit": f"{useful:.0%} of the iteration trains the model; the largest other part, {share:.0%}, is {label}.",
        "sizes": f"{parameters(config.model) / 1e9:,.1f} billion parameters on {config.parallel.n:,} GPUs, "
        f"{config.parallel.m:,} microbatches for each pipeline. Weights and activations of "
        f"{8 * loaded.element_bytes} bits, gradients of {8 * loaded.gradient_bytes}, {loaded.optimizer_bytes:g} bytes "
        "moved for each parameter by the optimizer.",
    }


def compared(before: Mapping[str, Any], after: Mapping[str, Any], tokens: str = "", price: str = "") -> dict[str, Any]:
    """Two configurations, each with its cluster: the fields that differ, the metrics of both, and a sentence.

    A configuration is {"configuration": ..., "cluster": ...}. `tokens` and `price` change nothing of it, but answers
    that are there with them are used.
    """
    answers = [evaluated(each["configuration"], each["cluster"], tokens, price) for each in (before, after)]
    both = list(zip((before, after), answers, strict=True))
    differ = [*differences(before, after)]
    return {
        "differences": differ,
        "phases": [further(each["configuration"], each["cluster"], answer).get("phases", []) for each, answer in both],
        "statuses": [answer["reason"] or answer["status"] for answer in answers],
        "metrics": [
            {
                "name": name,
                "label": METRICS[name].heading,
                "values": [None if answer[name] is None else METRICS[name].show(answer[name]) for answer in answers],
                "change": _change(*(answer[name] for answer in answers)),
            }
            for name in (*TOLD, "tokens_per_s", "idle_fraction")
        ],
        "sentence": _sentence(differ, *answers),
    }


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every field, and every number of the cluster, that is not the same in both, with both values."""
    settings = [_filled(each["configuration"]) for each in (before, after)]
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


def _filled(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with the defaults of the fields that it does not name."""
    return {name: field["default"] for name, field in form.offered().items()} | dict(configuration)


def _change(before: float | None, after: float | None) -> str:
    """The change in percent; empty where one of the values is not known."""
    if not before or after is None:
        return ""
    change = after / before - 1
    return "same" if abs(change) < STEADY else f"{change:+.1%}".replace("-", "\N{MINUS SIGN}")


def _sentence(differences: list[dict[str, Any]], before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What was changed and what that did, for one who has changed one thing; empty if nothing was."""
    if not differences:
        return ""
    what = "; ".join(f"{each['label']} {' → '.join(map(str, each['values']))}" for each in differences[:3])
    if len(differences) > 3:
        what += f"; and {len(differences) - 3} more"
    told = []
    for name in TOLD:
        metric, old, new = METRICS[name], before[name], after[name]
        if old is not None and new is not None:
            values = f"{metric.show(old)} → {metric.show(new)} {metric.shown}".strip()
            told.append(f"{metric.label} {values} ({_change(old, new)})")
    became = "" if before["status"] == after["status"] else f" It is now {after['status']}."
    return f"{what}: {', '.join(told)}.{became}" if told else f"{what}.{became}"


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
            metrics = {name: answer[name] for name in SWEEPABLE}
            points.append({"value": value, "status": answer["status"], "changes": changed, **metrics})
    label = " ".join(filter(None, (form.LABELS[field].words, form.LABELS[field].letter)))
    if field in GPUS:
        label += f" ({ADJUSTED[field]} with it, on {gpus(configuration):,} GPUs)"
    return {"field": field, "label": label, "points": points}


def gpus(configuration: Mapping[str, Any]) -> int:
    filled = _filled(configuration)
    return prod(int(filled[name]) for name in GPUS)


def changes(configuration: Mapping[str, Any], field: str, value: Any) -> dict[str, Any]:
    """The fields that change with one of them: a size of the layout takes another with it, or n would change.

    A size that does not divide n with the others makes the other one 0, which is not legal.
    """
    if field not in GPUS:
        return {field: value}
    other, n = ADJUSTED[field], gpus(configuration)
    rest = value * prod(int(_filled(configuration)[name]) for name in GPUS if name not in (field, other))
    return {field: value, other: 0 if n % rest else n // rest}


def _legal(configuration: Mapping[str, Any], field: str) -> list[Any]:
    """The values worth trying of a field that make a legal configuration, in their order."""
    definition = form.offered()[field]
    if definition["choices"]:
        values: list[Any] = list(definition["choices"])
    elif isinstance(definition["default"], bool):
        values = [False, True]
    else:
        now = _filled(configuration)[field] or 1
        doubled = [base << k for base in (1, 3) for k in range(13)]
        around = [now * k // 4 for k in (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)]
        values = sorted({*range(1, 17), *doubled, *around} - {0})
    return [value for value in values if _is_legal({**configuration, **changes(configuration, field, value)})]


def _is_legal(configuration: Mapping[str, Any]) -> bool:
    try:
        TrainingConfig.from_plain(without_default_schedule(configuration))
    except ConfigurationError:
        return False
    return True


def _thinned(values: list[Any], now: Any) -> list[Any]:
    """At most `SWEPT` of the values, the present one and its neighbours among them."""
    if len(values) <= SWEPT:
        return values
    near = values.index(now) if now in values else 0
    start = max(0, min(near - SWEPT // 2, len(values) - SWEPT))
    return values[start : start + SWEPT]
