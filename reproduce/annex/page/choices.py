"""What a reader may choose in What if: what is legal, what would fit, and what is best, each told in a sentence."""

from collections.abc import Iterator, Mapping
from typing import Any

from ptdp_core.simulator import Estimate
from ptdp_core.simulator.programs import USUAL, load_program
from reproduce.annex.page import answers, form, words
from reproduce.experiment.metrics import listed
from reproduce.planning import plan_text
from reproduce.planning.plan import MODEL_FIELDS, NothingFitsError, make_plan, request
from reproduce.planning.untried import DISPATCH
from reproduce.running.simulated import open_cluster
from results.records.errors import ReproduceError, UsageError

GB = 1e9
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
DIVIDED = "another division of the same GPUs"
BEYOND = "beyond the interval of the one shown"
GROUPS = {  # of best layouts: what each is called, and what is in it
    "near": ("Too near to call", "within what the simulator can tell apart from the one shown"),
    "tight": ("Tight", "less than 10% of memory free"),
    "faster": ("Surely faster", BEYOND),
    "slower": ("Surely slower", BEYOND),
    "2021": ("As in 2021", "the paper’s own means and its takeaways"),
}
MANY = (2, 3, 4, 5, 6, 8, 12)  # chunks on a GPU
DOUBLED = tuple(2**k for k in range(1, 9))


def chosen(configuration: Mapping[str, Any], gpus: int | None = None, batch: int | None = None) -> dict[str, Any]:
    """Another number of GPUs, or another batch: the fields that change, or what is wrong and what would be right."""
    filled = answers.filled(configuration)
    model = filled["p"] * filled["t"] * filled["c"]
    name = " × ".join(str(filled[size]) for size in ("p", "t", "c") if size != "c" or filled["c"] > 1)
    if gpus is not None:
        wanted, B = gpus / model, filled["B"] // filled["b"]
        replicas = min((d for d in range(1, B + 1) if B % d == 0), key=lambda d: abs(d - wanted))
        if replicas == wanted:
            return {"changes": {"d": replicas}}
        why = f"no multiple of {name}" if gpus % model else f"{gpus // model:,} replicas, which do not share {B:,}"
        return {
            "refused": f"{gpus:,} is {why}. Nearest: {model * replicas:,}. Or find the best layout.",
            "nearest": model * replicas,
        }
    unit = filled["d"] * filled["b"]
    step = unit * filled["p"] if filled["schedule"] == "interleaved" else unit
    assert batch is not None
    if batch > 0 and not answers.illegal({**configuration, "B": batch}):
        return {"changes": {"B": batch}}
    nearest = max(step, round(batch / step) * step)
    return {"refused": f"{batch:,} is no multiple of {step:,}. Nearest: {nearest:,}.", "nearest": nearest}


def scheduled(configuration: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Another schedule, with as many chunks on a GPU as it takes: the fields that change. Raises `ValueError`."""
    now = answers.filled(configuration)["v"]
    for v in (now, 1, 2, 3, 4, 6, 8):
        changes = {"schedule": name, "v": v}
        if not (reason := answers.illegal({**configuration, **changes})):
            return {"changes": changes}
    raise ValueError(reason)


def knobs(configuration: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """The next legal sizes of the layout, the techniques with what each would change, and why some are not legal."""
    filled = answers.filled(configuration)
    return {
        "steps": {name: _steps(configuration, name) for name in ("p", "t")},
        "chips": [*_chips(configuration, filled, cluster)],
    }


def _steps(configuration: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What changes with the next smaller and the next larger legal value of a size; None at its end."""
    now, n = answers.filled(configuration)[name], answers.gpus(configuration)
    values = [value for value in range(1, min(n, 512) + 1) if n % value == 0]

    def first(tried: list[int]) -> dict[str, Any] | None:
        changed = (answers.changes(configuration, name, value) for value in tried)
        return next((each for each in changed if not answers.illegal({**configuration, **each})), None)

    return {"less": first([v for v in reversed(values) if v < now]), "more": first([v for v in values if v > now])}


def _chips(configuration: Mapping[str, Any], filled: Mapping[str, Any], cluster: str) -> Iterator[dict[str, Any]]:
    """Each technique as a chip: chunks, context and experts with the values that are legal, others on or off."""
    v, c, e = (int(filled[name]) for name in ("v", "c", "e"))
    schedule = filled["schedule"] if v > 1 and filled["schedule"] else "interleaved"
    kind = words.schedule(schedule).lower()
    off = ("Not interleaved", {"v": 1, "schedule": ""})
    chunks = {n: (f"{n} chunks, {kind}", {"v": n, "schedule": schedule}) for n in sorted({*MANY, v} - {1})}
    yield _chosen(configuration, "Interleaved", v, {1: off} | chunks)
    for name, field, value, without in CHIPS:
        on = filled[field] not in (without, "none", False)
        changes = {field: without if on else value}
        lacks = field == "fp8_recipe" and not on and not answers.opened(cluster).fp8_peak_flops
        reason = answers.illegal({**configuration, **changes}) or lacks * "this GPU has no products of 8 bits"
        yield {"name": name, "on": on, "reason": reason, "options": [{"words": name, "changes": changes}], "at": 0}
    for name, field, now, values in (
        ("Context parallel", "c", c, {*DOUBLED, c}),
        ("Expert parallel", "e", e, {n for n in range(2, 513) if int(filled["experts"] or 0) % n == 0}),
    ):
        if field == "c" or filled["experts"]:
            each = {n: answers.changes(configuration, field, n) for n in sorted({1, *values})}
            said = {n: f"{name.split()[0]} over {n} GPUs" if n > 1 else f"No {name.lower()}ism" for n in each}
            yield _chosen(configuration, name, now, {n: (said[n], changes) for n, changes in each.items()})


def _chosen(
    configuration: Mapping[str, Any], name: str, now: int, values: Mapping[int, tuple[str, dict[str, Any]]]
) -> dict[str, Any]:
    """A technique with several values, of which only the legal ones are options; where no other is, why not."""
    reasons = {n: answers.illegal({**configuration, **changes}) for n, (_, changes) in values.items() if n != now}
    options = [
        {"words": said, "changes": changes} for n, (said, changes) in values.items() if n == now or not reasons[n]
    ]
    at = next(i for i, option in enumerate(options) if option["words"] == values[now][0])
    reason = next(iter(reasons.values())) if len(options) == 1 else ""
    return {"name": name, "on": now > 1, "options": options, "at": at, "reason": reason}


def programmed(configuration: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The configuration for another program: as it is, else without what that does not do, else with its own means."""
    given = {key: value for key, value in configuration.items() if key != "program"}
    if not name:
        return {"configuration": given}
    lacks = {key for key in load_program(name).lacks if key in given and given[key] != USUAL[key]}
    without = {key: value for key, value in given.items() if key in LAYOUT or key not in lacks}
    for size in sorted(lacks & {"p", "t", "c"}):
        without |= answers.changes(without, size, 1)
    model = {key: value for key, value in without.items() if key in (*MODEL_FIELDS, *LAYOUT, "b", "B")}
    data = model | {"p": 1, "t": 1, "c": 1, "d": answers.gpus(given), "recompute": "full"}
    tried = [each | {"program": name} for each in (given, without, model, data)]
    return {"configuration": next((each for each in tried if not answers.illegal(each)), tried[0])}


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


def best(configuration: Mapping[str, Any], cluster: str, gpus: int | None = None) -> dict[str, Any]:
    """The planner's layouts for the model, GPUs and batch of a configuration, beside it, in groups.

    Too near to call is what lies inside the interval of the one shown; tight is what leaves less than 10% of the
    memory; what is surely faster or slower stands apart, as does what the paper's takeaways choose. Each row says what
    differs from the one shown. With another number of `gpus` only `first`, the best one there, is of use.
    """
    filled = answers.filled(configuration)
    model = {name: filled[name] for name in MODEL_FIELDS if filled.get(name) is not None}
    name, job = request({**model, "gpus": gpus or answers.gpus(configuration), "batch": filled["B"]})
    program = answers.said(configuration).get("program")
    loaded, reference = open_cluster(cluster, program)
    try:
        result = make_plan(name, job, loaded, reference.name, SHOWN_PLANS, forbid=DISPATCH)
    except NothingFitsError as error:
        needs = f"needs less than {error.least / GB:.1f} GB of a GPU, which has {error.room / GB:.1f}"
        raise UsageError(form.in_words(f"nothing fits: on {job.n} GPUs no layout {needs}; {error.fix}")) from None
    except ReproduceError as error:
        raise UsageError(form.in_words(str(error))) from None
    shown = answers.evaluated(configuration, cluster)
    interval = (shown["intervals"] or {}).get("iteration_time")
    of_2021 = [result.papers_best, result.takeaways.chosen]
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in GROUPS}
    told, recipe = set(), list[str]()
    for estimate in (*result.search.ranked[:SHOWN_PLANS], *filter(None, of_2021)):
        plain = estimate.config.to_plain() | ({"program": program} if program else {})
        differs = _differs(plain, configuration, cluster)
        if not differs or estimate.config in told:
            continue
        told.add(estimate.config)
        kind = _group(estimate, shown, interval, result.is_tight(estimate), estimate in of_2021)
        own = [each for each in differs if kind != "2021" or each not in recipe]  # the recipes share means: told once
        said = ("also " if len(own) < len(differs) else "") + ", ".join((own or [DIVIDED])[:3])
        recipe += differs if kind == "2021" else []
        metrics = {metric.name: metric.simulated(estimate, loaded) for metric in listed()}
        rows[kind].append({"layout": _layout(plain), "differs": said, "configuration": plain} | metrics)
    mine = {"layout": _layout(filled), "differs": "shown", "mine": True, "configuration": dict(configuration)}
    numbers = ("iteration_time", "peak_memory", "model_flops_utilization")
    mine |= {each: shown[each] for each in numbers}
    if shown["status"] == "ok":
        rows["near"].insert(0, mine)
    return {
        "groups": [{"kind": kind, "words": GROUPS[kind], "rows": found} for kind, found in rows.items() if found],
        "counts": plan_text.count_line(result).replace("of ", "Of ", 1) + ".",
        "notes": [words.said(plan_text.untried_line(result)).replace("NOT TRIED", "Not tried", 1)],
        "first": {
            "configuration": result.best.config.to_plain() | ({"program": program} if program else {}),
            "iteration_time": result.best.iteration_time,
        },
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


def _differs(plain: Mapping[str, Any], configuration: Mapping[str, Any], cluster: str) -> list[str]:
    """What of a layout is not as in the one shown, each in words."""
    before, after = ({"configuration": answers.said(each), "cluster": cluster} for each in (configuration, plain))
    differs = [
        f"{each['label'].lower()} {each['values'][1]}"
        for each in answers.differences(before, after)
        if each["name"] not in ("p", "t", "d", "v") and each["name"] not in MODEL_FIELDS
    ]
    sizes = any(answers.filled(configuration)[name] != plain[name] for name in ("p", "t", "d", "v"))
    return differs or [DIVIDED] * sizes


def _layout(sizes: Mapping[str, Any]) -> str:
    chunks = f"{sizes['v']} chunks" if sizes["v"] > 1 else "1 chunk"
    return f"{sizes['p']} × {sizes['t']} × {sizes['d'] * sizes.get('c', 1)}, {chunks}"
