"""Seven short lessons: a picture, a slider, a guess, and what the simulator or the schedule itself says then.

Nothing in them is a number of ours: what is told is formatted from schedules that are executed, or from configurations
that are simulated. Pictures are of 4 stages and 8 microbatches in units of a forward pass; full size comes last.
"""

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ptdp_core.formulas import bubble_fraction as bubble_by_formula
from ptdp_core.schedules import bubble_fraction, build, execute, peak_stash
from reproduce.annex.page import answers, timelines, words
from reproduce.experiment.metrics import METRICS

CLUSTER = "selene"
STAGES = 4

Option = tuple[str, str, str]  # its value, what it would mean, and why it is not so, or "it is"


class Quiz(NamedTuple):
    """A question, its options, which one is right, and what is said when one was chosen."""

    question: str
    options: Sequence[Option]
    right: int
    after: str


class Miniature(NamedTuple):
    """A small schedule: its name, p, m, v and the times of a forward and a backward pass of a whole stage."""

    schedule: str
    p: int = STAGES
    m: int = 8
    v: int = 1
    t_f: int = 1
    t_b: int = 2


def _percent(value: float) -> str:
    return f"{value:.3g}%"


def _bubble(values: Sequence[float]) -> Sequence[Quiz]:
    twice, same, half = values[0], values[1], values[2]
    options = (
        (_percent(twice), "twice as much", "with 4 microbatches it is"),
        (_percent(same), "the same", "the work grows, the waiting does not"),
        (_percent(half), "half", "it is"),
    )
    after = "Half. Every stage still waits as long, beside twice the work: the pipeline fills and drains once."
    question = "Your guess: with 16 microbatches instead of 8, waiting is what share of the work?"
    return (Quiz(question, options, 2, after),)


def _interleaving(values: Sequence[float]) -> Sequence[Quiz]:
    options = (
        (_percent(values[0]), "the same", "the pipeline fills in smaller steps, so faster"),
        (_percent(values[1]), "half", "it is"),
        (_percent(values[2]), "a quarter", "four chunks do this"),
    )
    after = "Half: a stage hands on after half of its layers. But each chunk ends with a message: twice as many."
    return (Quiz("Your guess: with two chunks on each GPU, waiting is what share of the work?", options, 1, after),)


def _tensor(values: Sequence[float]) -> Sequence[Quiz]:
    before, node, beyond = values[1], values[2], values[3]
    options = (
        (f"{node * node / before:.1f}%", "on as before", "every layer’s sums now cross the network"),
        (f"{node:.1f}%", "the same", "a network is slower than NVLink"),
        (f"{beyond:.1f}%", "far less", "it is"),
    )
    after = "From 8 to 16 GPUs a layer is shared by two nodes, and each of its sums has to cross the network."
    question = "Your guess: a node has 8 GPUs. With 16 GPUs per layer, which share of the peak is left?"
    return (Quiz(question, options, 2, after),)


def _recomputation(values: Sequence[float]) -> Sequence[Quiz]:
    none, core, all_ = values
    options = (
        (f"{0.9 * none:.0f} GB", "a tenth less", "the attention core keeps far more than a tenth"),
        (f"{core:.0f} GB", "in between", "it is"),
        (f"{all_:.0f} GB", "as if everything were", "the linear layers still keep theirs"),
    )
    after = f"Recomputing everything saves {none - all_:.0f} GB; the attention core alone {none - core:.0f} of them."
    return (Quiz("Your guess: only the attention core is recomputed. How much memory is needed?", options, 1, after),)


def _microbatch(values: Sequence[float]) -> Sequence[Quiz]:
    stops = ("1", "2", "4", "8", "16")
    best = max(range(len(values)), key=lambda i: values[i])
    why = {4: "too few microbatches are left to fill the pipeline", 0: "the GPU waits for its memory"}
    options = [
        (
            stops[i],
            "sequences",
            "it is" if i == best else why.get(i, f"{values[i]:.1f}% instead of {values[best]:.1f}%"),
        )
        for i in sorted({0, best, 4} | ({1} if best in (0, 4) else set()))
    ]
    right = [option[0] for option in options].index(stops[best])
    after = f"{stops[best]}, with {values[best]:.1f}% of the peak. Larger ones leave fewer to fill the pipeline."
    return (Quiz("Your guess: which microbatch is best for 128 sequences on 4 stages?", options, right, after),)


def _zero_bubble(values: Sequence[float]) -> Sequence[Quiz]:
    usual, first = values[:2]
    options = (
        (_percent(usual), "the same", "the weights’ gradients now fill a part of it"),
        (_percent(first), "less", "it is"),
        ("0%", "nothing", "the first stages still have to fill"),
    )
    after = f"{_percent(first)}, in the memory of before. A pipeline folded into a V waits {_percent(values[3])}."
    question = "Your guess: the backward pass in two halves, the second moved into gaps. What share is waiting?"
    return (Quiz(question, options, 1, after),)


def _wrong(values: Sequence[float]) -> Sequence[Quiz]:
    pictures = [Miniature(**picture) for picture in LESSONS["wrong"]["pictures"]]
    steps = [_steps(picture) for picture in pictures]
    held = [max(peak_stash(build(picture.schedule, picture.p, picture.m))) for picture in pictures]
    first = Quiz(
        "Which of these statements is wrong? (8 stages, 32 microbatches, equal passes)",
        (
            ("GPipe waits", f"{values[0]:.1f}% of its work", "this is right"),
            ("1F1B takes", f"71 steps where GPipe takes {steps[0]}", f"wrong: both take {steps[1]}"),
            ("1F1B holds", f"{held[1]} microbatches, GPipe {held[0]}", "this is right"),
        ),
        1,
        f"Both take {steps[0]} steps and wait equally long. What 1F1B saves is memory: {held[1]} instead of {held[0]}.",
    )
    second = Quiz(
        "One result, told three times: which does not belong?",
        (
            ("1.56×", "the caption, at 1,024 tokens", "wrong: 1.56 is 56% faster, not 28%"),
            ("28% faster", "the text, at 1,024 tokens", "this agrees with 1.28×"),
            ("1.28×", "what 28% faster means", "this agrees with the text"),
        ),
        0,
        f"The caption’s number is {1.56 / 1.28:.2f} times the text’s: one division shows it.",
    )
    return (first, second)


LESSONS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
QUIZZES: dict[str, Callable[[Sequence[float]], Sequence[Quiz]]] = {  # from the values of the curve
    "bubble": _bubble,
    "interleaving": _interleaving,
    "tensor": _tensor,
    "recomputation": _recomputation,
    "microbatch": _microbatch,
    "zero-bubble": _zero_bubble,
    "wrong": _wrong,
}
TOLD = ("title", "lede", "label", "seen", "take", "formula", "artifact")


def offered() -> list[dict[str, str]]:
    """The lessons by id and title."""
    return [{"id": id, "title": lesson["title"]} for id, lesson in LESSONS.items()]


def lesson(id: str) -> dict[str, Any]:
    """A lesson with what each stop of its slider shows, its curve, and its guess. Raises `ValueError`."""
    if id not in LESSONS:
        raise ValueError(f"lesson={id} is unknown; needs one of {', '.join(LESSONS)}")
    shown = LESSONS[id]
    given = shown.get("pictures", ())
    pictures = [_picture(Miniature(**picture)) for picture in given]
    configurations = [{**shown["base"], **each} for each in shown.get("configurations", ())]
    full, sizes = _full(shown["full"]) if "full" in shown else (None, [])
    if pictures:
        values = [picture["waiting"] for picture in pictures]
        said = [picture["said"] for picture in pictures]
        quantity = "Waiting over work, %"
    else:
        metric = METRICS[shown["metric"]]
        simulated = [answers.evaluated(configuration, CLUSTER) for configuration in configurations]
        values = [float(answer[metric.name]) / metric.factor for answer in simulated]
        said = [_said(answer) for answer in simulated]
        quantity = "Of peak (MFU), %" if metric.name == "model_flops_utilization" else "Memory, GB"
    return {
        "id": id,
        **{name: shown[name] for name in TOLD},
        "stops": shown.get("stops") or [words.schedule(picture["schedule"]) for picture in given],
        "pictures": pictures,
        "said": said,
        "curve": {"quantity": quantity, "values": values},
        "quizzes": [quiz._asdict() for quiz in QUIZZES[id](values)],
        "full": full,
        "configurations": configurations or sizes,
    }


def _picture(picture: Miniature) -> dict[str, Any]:
    """A small schedule executed: the passes of each stage in units, what stages hold, and how long one waits."""
    schedule = build(picture.schedule, picture.p, picture.m, picture.v)
    rows = execute(schedule, picture.t_f, picture.t_b, picture.t_b // 2 or None)
    end = max(event.end for row in rows for event in row) / picture.v
    work = picture.m * (picture.t_f + picture.t_b)
    waiting = float(bubble_fraction(schedule, picture.t_f, picture.t_b, picture.t_b // 2 or None))
    shown = f"{end - work:g}"
    each = f"Each stage works {work} units and waits {shown}: {shown} ÷ {work} = {_percent(100 * waiting)}."
    held = max(peak_stash(schedule)) / picture.v
    said = f"{each} A stage holds {held:.3g} microbatches at most."
    return timelines.drawn(rows, float(end * picture.v), "units", picture.v) | {"waiting": 100 * waiting, "said": said}


def _steps(picture: Miniature) -> int:
    rows = execute(build(picture.schedule, picture.p, picture.m, picture.v), picture.t_f, picture.t_b)
    return int(max(event.end for row in rows for event in row))


def _said(answer: dict[str, Any]) -> str:
    """What a simulated stop says: its time, its share of the peak, its memory."""
    over = "" if answer["status"] == "ok" else ": more than a GPU has"
    return (
        f"An iteration takes {answer['iteration_time']:.3g} s, {100 * answer['model_flops_utilization']:.3g}% of the "
        f"peak; the fullest GPU holds {answer['peak_memory'] / 1e9:.3g} GB{over}."
    )


def _full(shown: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The lesson's curve at the size of a paper, simulated, and its configurations."""
    metric = METRICS[shown["metric"]]
    configurations = [{**shown["base"], **each} for each in shown["points"]]
    values = [float(answers.evaluated(each, CLUSTER)[metric.name]) / metric.factor for each in configurations]
    told = metric.name == "bubble_fraction"
    formula = [
        100 * bubble_by_formula(each["p"], each.get("B", 1), each.get("v", 1)) for each in configurations if told
    ]
    at = [words.schedule(each["schedule"]) if shown["x"] == "schedule" else each[shown["x"]] for each in configurations]
    return {
        "title": shown["title"],
        "quantity": "Waiting over work, %" if told else "Waiting, % of the time",
        "points": [{"x": x, "y": y} for x, y in zip(at, values, strict=True)],
        "formula": [{"x": x, "y": y} for x, y in zip(at, formula, strict=False)],
        "said": f"Simulated, waiting goes from {_percent(values[0])} at {at[0]} to {_percent(values[-1])} at {at[-1]}"
        + (f"; by the formula from {_percent(formula[0])} to {_percent(formula[-1])}." if formula else "."),
    }, configurations
