"""Six short lessons: each a picture, a slider, and a question that the simulator answers.

Nothing in them is a number of ours: what an answer says is formatted from configurations that are simulated for it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from reproduce.annex.page import answers, form
from reproduce.experiment.metrics import METRICS

CLUSTER = "selene"
METRICS_OF_STEP = ("idle_fraction", "bubble_fraction", *answers.SWEEPABLE)
GPT_3 = {"layers": 96, "hidden": 12288, "heads": 96}

Steps = Sequence[dict[str, Any]]  # of a lesson, simulated: a value of its field, a status and metrics


class Lesson(NamedTuple):
    """A configuration of which one field is varied, and what is asked of it.

    - `text`: what to know, in three sentences
    - `field`, `values`: what the slider sets; `layout` gives other fields that must change with it
    - `metric`: of the curve; with `timeline` the passes are drawn instead
    - `answer`: of the question, from the simulated steps
    """

    title: str
    text: str
    configuration: dict[str, Any]
    field: str
    values: tuple[Any, ...]
    metric: str
    question: str
    answer: Callable[[Steps], str]
    timeline: bool = False
    layout: Callable[[Any], dict[str, Any]] = lambda value: {}


def _of(steps: Steps, value: object) -> dict[str, Any]:
    return next(step for step in steps if step["value"] == value)


def _shown(step: dict[str, Any], name: str) -> str:
    """A metric of a step with its unit."""
    metric = METRICS[name]
    return f"{metric.show(step[name])}{'' if metric.shown == '%' else ' '}{metric.shown}"


def _bubble(steps: Steps) -> str:
    enough = next(step for step in steps if step["bubble_fraction"] < 0.1)
    ideal = (enough["configuration"]["p"] - 1) / enough["value"]
    return (
        f"With {enough['value']} microbatches the simulated bubble is {_shown(enough, 'bubble_fraction')} of the ideal "
        f"time; (p-1)/m gives {ideal:.1%}, for stages that take equally long. With {steps[0]['value']} it is "
        f"{_shown(steps[0], 'bubble_fraction')}."
    )


def _interleaving(steps: Steps) -> str:
    one, four = _of(steps, 1), _of(steps, 4)
    return (
        f"With four chunks an iteration takes {_shown(four, 'iteration_time')} instead of "
        f"{_shown(one, 'iteration_time')}: GPUs wait {_shown(four, 'idle_fraction')} of the time instead of "
        f"{_shown(one, 'idle_fraction')}. Each GPU sends {four['pipeline'] / one['pipeline']:.0f} times as much to "
        f"its neighbours, and the fullest one holds {_shown(four, 'peak_memory')} instead of "
        f"{_shown(one, 'peak_memory')}."
    )


def _tensor(steps: Steps) -> str:
    best = max(steps, key=lambda step: step["model_flops_utilization"])
    node, beyond = _of(steps, 8), _of(steps, 16)
    return (
        f"t={best['value']} is best, with an MFU of {_shown(best, 'model_flops_utilization')}. A node has 8 GPUs: from "
        f"t=8 to t=16 the MFU falls from {_shown(node, 'model_flops_utilization')} to "
        f"{_shown(beyond, 'model_flops_utilization')}, because every layer's all-reduces then cross the network."
    )


def _recomputation(steps: Steps) -> str:
    full, selective, none = (_of(steps, value) for value in ("full", "selective", "none"))
    return (
        f"Without it {_shown(none, 'peak_memory')} would be needed, with it {_shown(full, 'peak_memory')}; it makes an "
        f"iteration {full['iteration_time'] / none['iteration_time'] - 1:.0%} longer. Selective recomputation, of the "
        f"attention core only, needs {_shown(selective, 'peak_memory')} and costs "
        f"{selective['iteration_time'] / none['iteration_time'] - 1:.0%}."
    )


def _microbatch(steps: Steps) -> str:
    best = max(steps, key=lambda step: step["model_flops_utilization"])
    return (
        f"b={best['value']} is best, with an MFU of {_shown(best, 'model_flops_utilization')}. Smaller ones leave GPUs "
        f"waiting for memory ({_shown(steps[0], 'model_flops_utilization')} at b={steps[0]['value']}), larger ones "
        f"leave fewer microbatches to fill the pipeline: GPUs wait {_shown(steps[-1], 'idle_fraction')} of the time "
        f"instead of {_shown(steps[0], 'idle_fraction')}."
    )


def _zero_bubble(steps: Steps) -> str:
    usual, h1, h2, v = (_of(steps, value) for value in ("1f1b", "zb-h1", "zb-h2", "zb-v"))
    return (
        f"GPUs wait {_shown(h1, 'idle_fraction')} of the time with zb-h1 instead of {_shown(usual, 'idle_fraction')}, "
        f"for {_shown(h1, 'peak_memory')} on the fullest GPU instead of {_shown(usual, 'peak_memory')}. zb-h2 starts "
        f"more microbatches before it waits: {_shown(h2, 'idle_fraction')}, for {_shown(h2, 'peak_memory')}. zb-v "
        f"folds the pipeline into a V: {_shown(v, 'idle_fraction')}, for {_shown(v, 'peak_memory')}."
    )


LESSONS = {
    "bubble": Lesson(
        "Why a pipeline has a bubble",
        "The last stage cannot start before the first microbatch has passed all others, and the first stage waits for "
        "its way back. That time is lost once in an iteration, however long it is. So the more microbatches there are, "
        "the smaller is its share.",
        GPT_3 | {"p": 12, "t": 8},
        *("B", (12, 24, 48, 96, 144, 192, 240, 288), "bubble_fraction"),
        "How many microbatches do 12 stages need for a bubble below 10%?",
        _bubble,
        timeline=True,
    ),
    "interleaving": Lesson(
        "What interleaving buys and costs",
        "With v model chunks on each GPU a microbatch passes every GPU v times, in smaller steps. The pipeline fills v "
        "times as fast. But every step ends with a message.",
        GPT_3 | {"p": 12, "t": 8, "B": 24},
        *("v", (1, 2, 4, 8), "idle_fraction"),
        "What do four chunks on each GPU buy with a batch of 24, and what do they cost?",
        _interleaving,
        timeline=True,
    ),
    "tensor": Lesson(
        "When tensor parallelism leaves the node",
        "Tensor parallelism cuts every layer, and adds up the parts by all-reduces in every pass. Inside a node they "
        "go over NVLink. Here 64 GPUs are divided: t for each layer, and p=64/t pipeline stages.",
        {"layers": 32, "hidden": 20480, "heads": 128, "d": 1, "B": 128},
        *("t", (2, 4, 8, 16, 32), "model_flops_utilization"),
        "Which t is best on 64 GPUs in nodes of 8, and what does t=16 cost?",
        _tensor,
        layout=lambda t: {"p": 64 // t},
    ),
    "recomputation": Lesson(
        "Recomputation: time for memory",
        "The backward pass needs what the forward pass computed. Either a GPU keeps it, for every microbatch that is "
        "on its way, or it keeps each layer's input and computes the rest again.",
        GPT_3 | {"p": 12, "t": 8, "B": 60},
        *("recompute", ("none", "selective", "full"), "peak_memory"),
        "How much memory does full recomputation save, and how much longer does an iteration take?",
        _recomputation,
    ),
    "microbatch": Lesson(
        "The microbatch size",
        "A larger microbatch keeps a GPU busier in every pass. But the batch then has fewer microbatches, and the "
        "pipeline's bubble grows. Somewhere between is the best size.",
        {"layers": 32, "hidden": 4096, "heads": 32, "p": 4, "t": 4, "B": 128},
        *("b", (1, 2, 4, 8, 16), "model_flops_utilization"),
        "Which microbatch size is best for a batch of 128 on 4 stages?",
        _microbatch,
    ),
    "zero-bubble": Lesson(
        "Zero bubble",
        "A backward pass has two halves: the gradient of its input, for which the stage before waits, and that of its "
        "weights, for which nobody waits. The second can be moved to where the GPU would have waited.",
        {"layers": 48, "hidden": 8192, "heads": 64, "p": 8, "t": 8, "B": 24}
        | {"recompute": "none", "sequence_parallel": True},
        *("schedule", ("1f1b", "zb-h1", "zb-h2", "zb-v"), "idle_fraction"),
        "How much of the bubble is left, and what does it cost?",
        _zero_bubble,
        timeline=True,
        layout=lambda schedule: {"v": 2 if schedule == "zb-v" else 1},
    ),
}


def offered() -> list[dict[str, str]]:
    """The lessons by id and title."""
    return [{"id": id, "title": lesson.title} for id, lesson in LESSONS.items()]


def lesson(id: str) -> dict[str, Any]:
    """A lesson with all its steps simulated, and the answer to its question. Raises `ValueError`."""
    if id not in LESSONS:
        raise ValueError(f"lesson={id} is unknown; needs one of {', '.join(LESSONS)}")
    shown = LESSONS[id]
    steps = [_step(shown, value) for value in shown.values]
    metric, label = METRICS[shown.metric], form.LABELS[shown.field]
    return {
        "id": id,
        "cluster": CLUSTER,
        **{name: getattr(shown, name) for name in ("title", "text", "question", "timeline", "field")},
        "answer": shown.answer(steps),
        "label": f"{label.words} {label.letter}".strip(),
        "metric": {"name": metric.name, "heading": metric.heading, "factor": metric.factor, "digits": metric.digits},
        "points": steps,
    }


def _step(shown: Lesson, value: object) -> dict[str, Any]:
    """The configuration with a value of the lesson's field, simulated."""
    configuration = {**shown.configuration, shown.field: value, **shown.layout(value)}
    answer = answers.evaluated(configuration, CLUSTER)
    said = ", ".join(_shown(answer, name) for name in ("iteration_time", "peak_memory"))
    return {
        "value": value,
        "status": answer["status"],
        "configuration": configuration,
        "said": f"{said}, idle {_shown(answer, 'idle_fraction')} (bubble over ideal time "
        f"{_shown(answer, 'bubble_fraction')}), MFU {_shown(answer, 'model_flops_utilization')}",
        "pipeline": answer["traffic"]["pipeline"],
        **{name: answer[name] for name in METRICS_OF_STEP},
    }
