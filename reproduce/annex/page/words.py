"""What the page calls models, machines, schedules and choices: names for people, never those of files."""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from ptdp_core.schedules import definition
from ptdp_core.simulator import cluster_path
from ptdp_core.simulator.programs import load_program
from reproduce.experiment.metrics import METRICS
from reproduce.experiment.quantities import XAxis
from results.records import PointResult

CHOICES = {
    "none": "none",
    "full": "everything",
    "selective": "attention only",
    "operators": "not fused",
    "auto": "fused where that is faster",
    "ring": "in a ring",
    "sdpa": "fused",
    "local": "Megatron's",
    "torch": "PyTorch's",
    "zero2": "ZeRO-2",
    "zero3": "ZeRO-3",
    "all_gather": "gathered",
    "delayed": "8 bits, delayed scaling",
    "": "as usual",
}
PHASES = {
    "pipeline_communication": "messages",
    "bubble": "waiting",
    "data_parallel": "gradient exchange",
    "recompute": "recomputing",
    "embedding_and_logits": "embedding and logits",
    "forward": "forward",
    "backward": "backward",
}
LOOKS = {  # the class of its colour, of what is no optimizer or else
    "forward": "fwd",
    "backward": "bwd",
    "recompute": "fwd2",
    "bubble": "wait",
    **dict.fromkeys(("pipeline_communication", "data_parallel", "expert_exchange"), "msg"),
    "weights": "fwd",
    "gradients": "bwd",
    **dict.fromkeys(("stashed_activations", "working_activations"), "fwd2"),
}
KINDS = {
    "holds": "holds",
    "inconclusive": "open",
    "paper inconsistent": "self",
    "contradicted": "contra",
    "not testable here": "untested",
}
MACHINES = {"selene": "Selene: A100s, as in the paper"}
_SIZED = re.compile(r"(?:(?P<family>.*?)-)?(?P<size>\d+(?:\.\d+)?|\d+x\d+)(?P<unit>[bt])(?P<rest>-.*)?")
_FAMILIES = {"gpt3": "GPT-3", "": "GPT"}


@cache
def model(name: str) -> str:
    """'llama-3-70b' is 'Llama 3, 70 billion parameters'."""
    found = _SIZED.fullmatch(name)
    if not found:
        return " ".join(word.capitalize() for word in name.split("-"))
    family = found["family"] or ""
    words = _FAMILIES.get(family) or " ".join(word.capitalize() for word in family.split("-"))
    if name in ("175b", "1t"):
        words = "GPT-3"
    unit = {"b": "billion", "t": "trillion"}[found["unit"]]
    active = re.fullmatch(r"-a(\d+)b", found["rest"] or "")
    rest = f", {active[1]} active" if active else (found["rest"] or "").replace("-", ", ")
    return f"{words}, {found['size'].replace('x', ' × ')} {unit} parameters{rest}"


@cache
def machine(name: str) -> str:
    """A shipped cluster by what stands in its nodes."""
    described = str(tomllib.loads(cluster_path(name).read_text(encoding="utf-8")).get("description") or name)
    return MACHINES.get(name) or described.replace(", a training program of today", "").replace(" x ", " × ")


@cache
def schedule(name: str) -> str:
    """'1f1b' is 'Default (1F1B)'; others are called as in figures."""
    if not name:
        return "as usual"
    return {"1f1b": "Default (1F1B)", "interleaved": "Interleaved"}.get(name) or definition(name).title


def choice(field: str, value: str) -> str:
    """A choice of a field in words."""
    if field == "program":
        return load_program(value).title if value else "the usual one of the machine"
    return schedule(value) if field == "schedule" else CHOICES.get(value, value.replace("_", " "))


def said(text: str) -> str:
    """A text of the planner with what it calls fields and schedules in words: 'v=4' is '4 chunks'."""
    patterns: tuple[tuple[str, Any], ...] = (
        (r"\bv=(\d+)", r"\1 chunks"),
        (r"\bb=(\d+)", r"microbatches of \1"),
        (r"\bGEMM rate\b", "matrix products"),
        (r" x2\b", " twice as fast"),
        (r"batch twice as fast", "batch doubled"),
        (r"\bcontext_exchange=(\w+)", r"context in a \1"),
        (r"\bdata_parallel=torch", "PyTorch’s data parallelism"),
        (r"--allow (\w+)(?: \(FP[48], [^)]*\))?", lambda found: choice("", found[1])),
        (r", here simulated on rank 1, tokens/s:", ", tokens a second more than the fastest:"),
    )
    for pattern, shown in patterns:
        text = re.sub(pattern, shown, text)
    return re.sub(r"^(?:zb|v|dualpipev)-?\w+(?=,|$)", lambda found: schedule(found[0]), text)


def phase(name: str) -> str:
    """A part of an iteration's time."""
    return PHASES.get(name) or METRICS[f"{name}_time"].label


def parts(sizes: Mapping[str, float], unit: float, label: Callable[[str], str]) -> list[dict[str, Any]]:
    """The parts of a whole: what each is called, how it looks, and its size in a unit."""
    return [
        {"name": name, "label": label(name), "look": LOOKS.get(name, "opt"), "size": size / unit}
        for name, size in sizes.items()
    ]


def figures(value: float) -> str:
    """A number in three figures, or as many as its whole part has; a true minus."""
    return (f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}").replace("-", "\N{MINUS SIGN}")


def between(ends: Mapping[str, float] | None, unit: float = 1.0) -> str:
    """An interval in words; '' where there is none."""
    return f"{figures(ends['low'] / unit)} to {figures(ends['high'] / unit)}" if ends else ""


def near(points: Sequence[PointResult], metric: str) -> str:
    """How near ours are to the paper's, in a sentence."""
    points_ok = [
        point for point in points if point.status == "ok" and metric in point.metrics and metric in point.paper
    ]
    both = [(point.metrics[metric].value, point.paper[metric].value) for point in points_ok]
    off = [100 * abs(ours / paper - 1) for ours, paper in both if ours and paper]
    if not off:
        return f"{len(points)} points; the paper prints none of them."
    return f"{len(off)} points: {sum(off) / len(off):.1f}% from the paper on average, {max(off):.1f}% at worst."


def reading(
    points: Sequence[PointResult], metric: str, fidelity: str, ringed: bool, elsewhere: bool
) -> list[tuple[str, str, str]]:
    """What the marks of a chart mean, of those that it has: the mark, what it is called, and a sentence."""
    how = "By a formula" if fidelity == "derived" else "Simulated here"
    marks = [("dot", "Dot and line", f"{how}, just now.")]
    if ringed:
        ring = "value, on its own machine" if elsewhere else "value. A dot inside its ring agrees"
        marks.append(("ring", "Ring", f"The paper’s {ring}."))
    sure = [point.metrics[metric] for point in points if metric in point.metrics and point.metrics[metric].interval]
    if sure and (ends := sure[0].interval) and sure[0].value:
        low, high = (100 * abs(end / sure[0].value - 1) for end in (ends.low, ends.high))
        band = "Where 9 of 10 real values are expected, of programs whose runs were scored"
        marks.append(("band", "Band", f"{band}: {low:.1f}% below to {high:.1f}% above."))
    return marks


def finding(points: Sequence[PointResult], metric: str, x: XAxis) -> tuple[str, dict[str, Any] | None]:
    """What two series say together, in one sentence, and where they are most apart, by how much.

    'Interleaved is 9 to 48% above non-interleaved, most at batch size 12'. Nothing unless one of them is above the
    other at every value of x.
    """
    series: dict[str, dict[object, float]] = {}
    for point in points:
        value = point.metrics[metric].value if point.status == "ok" and metric in point.metrics else None
        if value is not None:
            series.setdefault(point.series, {})[point.parameters.get(x.parameter)] = float(value)
    if len(series) != 2 or not all(series):
        return "", None
    (low, under), (high, over) = sorted(series.items(), key=lambda each: max(each[1].values()))
    shared = [at for at in over if at in under]
    gains = {at: over[at] / under[at] - 1 for at in shared if under[at] > 0}
    if len(gains) < 3 or min(gains.values()) <= 0.005:
        return "", None
    most = max(gains, key=lambda at: gains[at])
    where = x.label.partition(" (")[0].lower()
    low = low[:1].lower() + low[1:] if low[1:2].islower() else low
    above = f"{100 * min(gains.values()):.0f} to {100 * gains[most]:.0f}% above {low}"
    return f"{high} is {above}, most at {where} {most}", {"x": most, "words": f"{gains[most]:+.0%}"}
