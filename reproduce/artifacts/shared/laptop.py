"""The experiments of the paper's figures at scale 'laptop': small enough to be emulated in real time on one machine.

At most 16 ranks on nodes of 2 or 4, with layers like the paper's and a batch whose iteration takes about a second of
the emulated cluster's time. The sizes were chosen with the simulator: what the figure is about can be seen, and passes
take 10 ms or more, so that what this machine does for one is small beside it. The vocabulary is small: with few layers
a stage, the logits of a large one would make the last stage the slowest.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from reproduce.artifacts.shared.grids import Line, Mark, crossed, lines_by_batch, marks_by_batch, marks_by_pair
from reproduce.experiment.artifact import Point, Scalar, Setting

SCALE = "laptop"
SCALES = ("paper", SCALE)  # of a claim that is about a direction


@dataclass(frozen=True)
class Experiment:
    """A figure's experiment: what it is called, and series times x values of one configuration on n GPUs."""

    setting: Setting
    gpus: int | None
    shared: Mapping[str, Scalar]
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]


def _model(layers: int | None, hidden: int, heads: int) -> dict[str, Scalar]:
    shape: dict[str, Scalar] = {"hidden": hidden, "heads": heads, "seq": 2048, "vocab": 8192}
    return shape if layers is None else {"layers": layers, **shape}


def schedule_lines(v: int) -> tuple[Line, ...]:
    """A series for every schedule there is, the interleaved one with v chunks: the paper's three, and ZB-H1."""
    return (
        Line("GPipe", "gpipe", {"v": 1, "schedule": "gpipe"}),
        Line("1F1B", "1f1b", {"v": 1, "schedule": "1f1b"}),
        Line("Interleaved 1F1B", "interleaved", {"v": v, "schedule": "interleaved"}),
        Line("ZB-H1", "zb_h1", {"v": 1, "schedule": "zb-h1"}),
    )


GPT_3_LAYERS = _model(8, 12288, 96)
BATCHES = (4, 8, 12, 16)

EXPERIMENTS = {
    "fig_interleaved": Experiment(
        Setting(
            "Interleaved versus non-interleaved schedule, 8 layers of GPT-3 175B on 8 GPUs",
            "Throughput per GPU against batch size for 1F1B with one model chunk per device (v=1) and for interleaved "
            "1F1B with v=2; p=4, t=2, nodes of 2 GPUs, microbatch size 1. FLOP/s by the paper's count (eq. 3).",
        ),
        8,
        {**GPT_3_LAYERS, "p": 4, "t": 2, "b": 1, "gpus_per_node": 2},
        (Line("Non-interleaved", "non_interleaved", {"v": 1}), Line("Interleaved", "interleaved", {"v": 2})),
        marks_by_batch(BATCHES),
    ),
    "fig_schedules": Experiment(
        Setting(
            "Pipeline schedules with zero-bubble ZB-H1, 8 layers of GPT-3 175B on 8 GPUs",
            "Throughput per GPU against batch size for GPipe, 1F1B, interleaved 1F1B with v=2, and ZB-H1, a schedule "
            "with split backward passes that is not in the paper; p=4, t=2, nodes of 2 GPUs, microbatch size 1, full "
            "recomputation. FLOP/s by the paper's count (eq. 3).",
        ),
        8,
        {**GPT_3_LAYERS, "p": 4, "t": 2, "b": 1, "gpus_per_node": 2},
        schedule_lines(v=2),
        marks_by_batch((4, 8, 16)),
    ),
    "fig_scatter_gather": Experiment(
        Setting(
            "Scatter/gather optimization, 8 layers of GPT-3 175B on 16 GPUs",
            "Throughput per GPU against batch size with and without the scatter/gather optimization; interleaved 1F1B "
            "with v=2, p=4, t=4, nodes of 4 GPUs, microbatch size 2. FLOP/s by the paper's count (eq. 3).",
        ),
        16,
        {**GPT_3_LAYERS, "p": 4, "t": 4, "b": 2, "gpus_per_node": 4},
        (
            Line("Unoptimized", "unoptimized", {"scatter_gather": False, "v": 2}),
            Line("Scatter/gather optimization", "scatter_gather", {"scatter_gather": True, "v": 2}),
            Line("Default schedule, unoptimized", "default_unoptimized", {"scatter_gather": False, "v": 1}),
            Line("Default schedule, scatter/gather", "default_scatter_gather", {"scatter_gather": True, "v": 1}),
        ),
        marks_by_batch((8, 16, 24)),
    ),
    "fig_pipeline_weak_scaling": Experiment(
        Setting(
            "Weak scaling of pipeline parallelism on up to 16 GPUs",
            "Throughput per GPU against the pipeline-parallel size p for two batch sizes; two layers a stage, hidden "
            "size 6144, 48 heads, t=2, nodes of 2 GPUs, microbatch size 1, 2p GPUs, non-interleaved 1F1B. FLOP/s by "
            "the paper's count (eq. 3).",
        ),
        None,
        {**_model(None, 6144, 48), "t": 2, "d": 1, "v": 1, "b": 1, "gpus_per_node": 2},
        lines_by_batch((8, 32)),
        tuple(Mark(f"p={p}", {"p": p, "layers": 2 * p}) for p in (1, 2, 4, 8)),
    ),
    "fig_tensor_vs_pipeline": Experiment(
        Setting(
            "Tensor versus pipeline parallelism, 8 layers on 8 GPUs",
            "Throughput per GPU of the four ways to split 8 GPUs, in nodes of 2, into pipeline- and tensor-parallel "
            "size, for two batch sizes; hidden size 8192, 64 heads, microbatch size 1, non-interleaved 1F1B. FLOP/s "
            "by the paper's count (eq. 3).",
        ),
        8,
        {**_model(8, 8192, 64), "v": 1, "b": 1, "gpus_per_node": 2},
        lines_by_batch((8, 16)),
        marks_by_pair(("p", "t"), ((1, 8), (2, 4), (4, 2), (8, 1))),
    ),
    "fig_pipeline_vs_data": Experiment(
        Setting(
            "Pipeline versus data parallelism, 8 layers on 8 GPUs",
            "Throughput per GPU of three ways to split 8 GPUs, in nodes of 4, into pipeline- and data-parallel size "
            "(t=1), for two batch sizes; hidden size 6144, 48 heads, microbatch size 1. FLOP/s by the paper's count "
            "(eq. 3).",
        ),
        8,
        {**_model(8, 6144, 48), "t": 1, "v": 1, "b": 1, "gpus_per_node": 4},
        lines_by_batch((16, 32)),
        marks_by_pair(("p", "d"), ((2, 4), (4, 2), (8, 1))),
    ),
    "fig_tensor_vs_data": Experiment(
        Setting(
            "Tensor versus data parallelism, 4 layers on 8 GPUs",
            "Throughput per GPU of three ways to split 8 GPUs, in nodes of 4, into tensor- and data-parallel size "
            "(p=1), for three batch sizes; hidden size 4096, 32 heads, microbatch size 1. FLOP/s by the paper's count "
            "(eq. 3).",
        ),
        8,
        {**_model(4, 4096, 32), "p": 1, "v": 1, "b": 1, "gpus_per_node": 4},
        lines_by_batch((32, 48, 64)),
        marks_by_pair(("t", "d"), ((2, 4), (4, 2), (8, 1))),
    ),
    "fig_microbatch": Experiment(
        Setting(
            "Microbatch size, 16 layers on 8 GPUs",
            "Throughput per GPU against the microbatch size b for two batch sizes; t=2, p=4, nodes of 2 GPUs, 16 "
            "layers, hidden size 2048, 16 heads, non-interleaved 1F1B. FLOP/s by the paper's count (eq. 3).",
        ),
        8,
        {**_model(16, 2048, 16), "p": 4, "t": 2, "v": 1, "gpus_per_node": 2},
        lines_by_batch((32, 64)),
        tuple(Mark(f"b={b}", {"b": b}) for b in (1, 2, 4, 8)),
    ),
    "fig_recomputation": Experiment(
        Setting(
            "Activation recomputation, 32 layers on 8 GPUs",
            "Sequences per second against the batch size, with full recomputation and without any; t=1, p=8, nodes of "
            "2 GPUs, 32 layers, hidden size 4096, 64 heads, microbatch size 1, non-interleaved 1F1B. Points that do "
            "not fit in the GPUs' memory, by the simulator's count, are reported with the bytes they need.",
        ),
        8,
        {**_model(32, 4096, 64), "p": 8, "t": 1, "v": 1, "b": 1, "gpus_per_node": 2},
        (
            Line("With recomputation", "full", {"recompute": "full"}),
            Line("Without recomputation", "none", {"recompute": "none"}),
        ),
        marks_by_batch((1, 2, 4, 8, 16, 32)),
    ),
}


def points(id: str) -> tuple[Point, ...]:
    """The points of a figure at this scale; none has a value of the paper's, which ran other configurations."""
    experiment = EXPERIMENTS[id]
    return crossed(experiment.shared, experiment.lines, experiment.marks, experiment.gpus)


def settings(id: str) -> dict[str, Setting]:
    """What a figure is called at this scale; for `Artifact.settings`."""
    return {SCALE: EXPERIMENTS[id].setting}
