"""What a reader may choose in What if: what is legal, what would fit, and what is best, each told in a sentence."""

from collections.abc import Iterator, Mapping
from math import gcd
from typing import Any

from ptdp_core.config import TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.simulator import Estimate
from reproduce.annex.page import answers, form, words
from reproduce.experiment.metrics import listed
from reproduce.planning import plan_text
from reproduce.planning.plan import MODEL_FIELDS, make_plan, request
from reproduce.planning.untried import DISPATCH
from reproduce.running.simulated import open_cluster

SHOWN_PLANS = 7
# A technique as a chip: what it is called, the field that it sets, its value when it is on and when it is off.
CHIPS: tuple[tuple[str, str, Any, Any], ...] = (
    ("Sequence parallel", "sequence_parallel", True, False),
    ("Sharded optimizer", "sharded_optimizer", True, False),
    ("Fused attention", "attention", "sdpa", "operators"),
    ("Recomputation", "recompute", "full", "none"),
    ("8-bit products", "fp8_recipe", "delayed", "none"),
)
LAYOUT = ("p", "t", "c", "d")


def chosen(configuration: Mapping[str, Any], gpus: int | None = None, batch: int | None = None) -> dict[str, Any]:
    """Another number of GPUs, or another batch: the fields that change, or what is wrong and what would be right."""
    filled = _filled(configuration)
    model = filled["p"] * filled["t"] * filled["c"]
    name = " × ".join(str(filled[size]) for size in ("p", "t", "c") if size != "c" or filled["c"] > 1)
    if gpus is not None:
        wanted, B = gpus / model, filled["B"] // filled["b"]
        replicas = min((d for d in range(1, B + 1) if B % d == 0), key=lambda d: abs(d - wanted))
        if replicas == wanted:
            return {"changes": {"d": replicas}}
        why = f"no multiple of {name}" if gpus % model else f"{gpus // model:,} replicas, which do not share {B:,}"
        return {"wrong": f"{gpus:,} is {why}. Nearest: {model * replicas:,}.", "nearest": model * replicas}
    unit = filled["d"] * filled["b"]
    step = unit * filled["p"] if filled["schedule"] == "interleaved" else unit
    assert batch is not None
    if batch > 0 and _legal({**configuration, "B": batch}) == "":
        return {"changes": {"B": batch}}
    nearest = max(step, round(batch / step) * step)
    return {"wrong": f"{batch:,} is no multiple of {step:,}. Nearest: {nearest:,}.", "nearest": nearest}


def scheduled(configuration: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Another schedule, with as many chunks on a GPU as it takes: the fields that change. Raises `ValueError`."""
    now = _filled(configuration)["v"]
    for v in (now, 1, 2, 3, 4, 6, 8):
        changes = {"schedule": name, "v": v}
        if not (reason := _legal({**configuration, **changes})):
            return {"changes": changes}
    raise ValueError(reason)


def knobs(configuration: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """The next legal sizes of the layout, the techniques with what each would change, and why some are not legal."""
    filled = _filled(configuration)
    return {
        "sizes": {name: filled[name] for name in ("p", "t", "c", "d", "v", "b", "B")},
        "steps": {name: _steps(configuration, name) for name in ("p", "t")},
        "chips": [*_chips(configuration, filled, cluster)],
        "layers": filled["layers"],
    }


def _steps(configuration: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What changes with the next smaller and the next larger legal value of a size; None at its end."""
    now, n = _filled(configuration)[name], answers.gpus(configuration)
    values = [value for value in range(1, min(n, 512) + 1) if n % value == 0 and value != now]
    changed = {value: answers.changes(configuration, name, value) for value in values}
    legal = [value for value in values if _legal({**configuration, **changed[value]}) == ""]
    less, more = [v for v in legal if v < now], [v for v in legal if v > now]
    return {"less": changed[less[-1]] if less else None, "more": changed[more[0]] if more else None}


def _chips(configuration: Mapping[str, Any], filled: Mapping[str, Any], cluster: str) -> Iterator[dict[str, Any]]:
    interleaved = filled["v"] > 1
    name = f"{filled['v']} chunks, {words.schedule(filled['schedule']).lower()}" if interleaved else "Interleaved"
    off = {"v": 1, "schedule": ""}
    chunks = next((v for v in (4, 2, 3, 5, 8) if _legal({**configuration, "v": v, "schedule": "interleaved"}) == ""), 2)
    on = {"v": chunks, "schedule": "interleaved"}
    yield _chip(configuration, name, interleaved, off if interleaved else on)
    for words_, field, value, without in CHIPS:
        is_on = filled[field] not in (without, "none", False)
        chip = _chip(configuration, words_, is_on, {field: without if is_on else value})
        lacks = field == "fp8_recipe" and not is_on and not open_cluster(cluster)[0].fp8_peak_flops
        yield chip | {"reason": chip["reason"] or lacks * "this GPU has no products of 8 bits"}
    c = filled["c"]
    parallel = {"c": 1 if c > 1 else 2, "d": filled["d"] * c if c > 1 else filled["d"] // 2}
    yield _chip(configuration, f"Context over {c} GPUs" if c > 1 else "Context parallel", c > 1, parallel)
    if filled.get("experts"):
        e = filled["e"]
        shared = gcd(int(filled["experts"]), int(filled["d"]))
        experts = {"e": 1 if e > 1 else shared}
        yield _chip(configuration, f"Experts over {e} GPUs" if e > 1 else "Expert parallel", e > 1, experts)


def _chip(configuration: Mapping[str, Any], name: str, on: bool, changes: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "on": on, "changes": changes, "reason": _legal({**configuration, **changes})}


def _legal(configuration: Mapping[str, Any]) -> str:
    """Why a configuration is not legal; '' if it is."""
    try:
        TrainingConfig.from_plain(answers.without_default_schedule(configuration))
    except ConfigurationError as error:
        return str(error)
    return ""


def _filled(configuration: Mapping[str, Any]) -> dict[str, Any]:
    return {name: field["default"] for name, field in form.offered().items()} | dict(configuration)


def helps(configuration: Mapping[str, Any], cluster: str) -> list[dict[str, Any]]:
    """The changes with which a configuration that does not fit would: what each is, and how much it needs then."""
    found = answers.evaluated(configuration, cluster).get("advice", ())
    return [
        {
            "name": ", ".join(f"{form.LABELS[name].words} {form.shown(name, v)}" for name, v in each["fields"].items()),
            "changes": each["fields"],
            "memory": each["peak_memory"],
        }
        for each in found
    ]


def best(configuration: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """The planner's layouts for the model, GPUs and batch of a configuration, beside it, in groups.

    Too near to call is what lies inside the interval of the one shown; tight is what leaves less than 10% of the
    memory; what is surely faster or slower stands apart, as does what the paper's takeaways choose. Each row says what
    differs from the one shown.
    """
    filled = _filled(configuration)
    model = {name: filled[name] for name in MODEL_FIELDS if filled.get(name) is not None}
    name, job = request({**model, "gpus": answers.gpus(configuration), "batch": filled["B"]})
    loaded, reference = open_cluster(cluster)
    result = make_plan(name, job, loaded, reference.name, SHOWN_PLANS, forbid=DISPATCH)
    shown = answers.evaluated(configuration, cluster)
    interval = (shown["intervals"] or {}).get("iteration_time")
    of_2021 = [result.papers_best, result.takeaways.chosen]
    rows: dict[str, list[dict[str, Any]]] = {"near": [], "tight": [], "faster": [], "slower": [], "2021": []}
    told = set()
    for estimate in (*result.search.ranked[:SHOWN_PLANS], *filter(None, of_2021)):
        row = _row(estimate, configuration, cluster, loaded)
        if not row["differs"] or estimate.config in told:
            continue
        told.add(estimate.config)
        rows[_group(estimate, shown, interval, result.is_tight(estimate), estimate in of_2021)].append(row)
    mine = {"layout": _layout(filled), "differs": "shown", "mine": True, "configuration": dict(configuration)}
    numbers = ("iteration_time", "peak_memory", "model_flops_utilization")
    mine |= {each: shown[each] for each in numbers}
    if shown["status"] == "ok":
        rows["near"].insert(0, mine)
    return {
        "groups": [{"kind": kind, "rows": found} for kind, found in rows.items() if found],
        "counts": plan_text.count_line(result).replace("of ", "Of ", 1) + ".",
        "notes": [words.said(plan_text.untried_line(result)).replace("NOT TRIED", "Not tried", 1)],
        "first": {"configuration": result.best.config.to_plain(), "iteration_time": result.best.iteration_time},
    }


def _group(
    estimate: Estimate, shown: Mapping[str, Any], interval: Mapping[str, float] | None, tight: bool, of_2021: bool
) -> str:
    if tight:
        return "tight"
    if shown["iteration_time"] is None:
        return "2021" if of_2021 else "faster"
    low, high = (interval["low"], interval["high"]) if interval else (shown["iteration_time"],) * 2
    if low <= estimate.iteration_time <= high:
        return "near"
    if of_2021:
        return "2021"
    return "faster" if estimate.iteration_time < low else "slower"


def _row(estimate: Estimate, configuration: Mapping[str, Any], cluster: str, loaded: Any) -> dict[str, Any]:
    """A layout with its numbers, and what of it is not as in the one shown."""
    plain = estimate.config.to_plain()
    before, after = (
        {"configuration": answers.without_default_schedule(each), "cluster": cluster} for each in (configuration, plain)
    )
    differs = [
        f"{each['label'].lower()} {each['values'][1]}"
        for each in answers.differences(before, after)
        if each["name"] not in ("p", "t", "d", "v") and each["name"] not in MODEL_FIELDS
    ]
    sizes = any(_filled(configuration)[name] != plain[name] for name in ("p", "t", "d", "v"))
    differ = ", ".join(differs[:3]) or ("another division of the same GPUs" if sizes else "")
    metrics = {metric.name: metric.simulated(estimate, loaded) for metric in listed()}
    return {"layout": _layout(plain), "differs": differ, "configuration": plain} | metrics


def _layout(sizes: Mapping[str, Any]) -> str:
    chunks = f"{sizes['v']} chunks" if sizes["v"] > 1 else "1 chunk"
    return f"{sizes['p']} × {sizes['t']} × {sizes['d'] * sizes.get('c', 1)}, {chunks}"
