"""What every figure and table trains at fidelity 'measured': series, x values, sizes; see `measured_points`."""

from collections.abc import Mapping

from reproduce.artifacts.shared.grids import Line, Mark, lines_by_batch, marks_by_batch, marks_by_pair
from reproduce.artifacts.shared.measured_points import CPU, GPU, GPUS, Experiment

DEFAULT, INTERLEAVED = (
    Line("Non-interleaved", "non_interleaved", {"v": 1}),
    Line("Interleaved", "interleaved", {"v": 2}),
)
FEW_LAYERS = {"layers": 4}
CHECKPOINTED = tuple(
    Mark(f"p={p}, t={t}, d={d}", {"p": p, "t": t, "d": d, "gpus": p * t * d})
    for p, t, d in ((1, 1, 1), (2, 1, 1), (2, 2, 1), (1, 1, 4))
)
PTDP_AND_ZERO3 = Experiment(
    "PTD-P against ZeRO-3",
    "Throughput per rank of PTD-P (t=2) and of ZeRO-3 (FSDP2, no model parallelism) on 2 and 4 ranks, B=8, b=1",
    (
        Line("PTD-P", "ptd_p", {"t": 2, "model_parallel": 2}),
        Line("ZeRO-3", "zero_3", {"data_parallel": "zero3", "model_parallel": 1}),
    ),
    tuple(Mark(f"{n} ranks", {"gpus": n}) for n in (2, 4)),
    {"b": 1, "B": 8},
    model=FEW_LAYERS,
)

EXPERIMENTS: Mapping[str, tuple[Experiment, ...]] = {
    "fig_interleaved": (
        Experiment(
            "Interleaved versus non-interleaved schedule",
            "Throughput against batch size for 1F1B with one model chunk per rank (v=1) and interleaved 1F1B with v=2; "
            "p=4, t=1, b=1",
            (DEFAULT, INTERLEAVED),
            marks_by_batch((4, 8, 16)),
            {"p": 4, "b": 1},
            claims=("interleaved_higher", "gap_closes"),
        ),
    ),
    "fig_scatter_gather": (
        Experiment(
            "Scatter/gather optimization",
            "Throughput against batch size with and without scatter/gather; interleaved 1F1B, v=2, p=2, t=2, b=1",
            (
                Line("Unoptimized", "unoptimized", {"scatter_gather": False}),
                Line("Scatter/gather optimization", "scatter_gather", {"scatter_gather": True}),
            ),
            marks_by_batch((2, 4, 8)),
            {"p": 2, "t": 2, "v": 2, "b": 1},
            model=FEW_LAYERS,
        ),
    ),
    "fig_pipeline_weak_scaling": (
        Experiment(
            "Weak scaling of pipeline parallelism",
            "Throughput against the pipeline-parallel size p on p ranks, two layers a stage, for two batch sizes; b=1",
            lines_by_batch((4, 16)),
            tuple(Mark(f"p={p}", {"p": p, "layers": 2 * p}) for p in (1, 2, 4)),
            {"d": 1, "b": 1},
            claims=("higher_batch_scales_better",),
        ),
    ),
    "fig_tensor_vs_pipeline": (
        Experiment(
            "Tensor versus pipeline parallelism",
            "Throughput of three ways to split 4 ranks into pipeline- and tensor-parallel size, b=1",
            lines_by_batch((4, 8)),
            marks_by_pair(("p", "t"), ((1, 4), (2, 2), (4, 1))),
            {"b": 1},
            model=FEW_LAYERS,
        ),
    ),
    "fig_pipeline_vs_data": (
        Experiment(
            "Pipeline versus data parallelism",
            "Throughput of two ways to split 4 ranks into pipeline- and data-parallel size (t=1), b=1",
            lines_by_batch((8, 16)),
            marks_by_pair(("p", "d"), ((2, 2), (4, 1))),
            {"b": 1},
        ),
    ),
    "fig_tensor_vs_data": (
        Experiment(
            "Tensor versus data parallelism",
            "Throughput of two ways to split 4 ranks into tensor- and data-parallel size (p=1), b=1",
            lines_by_batch((2, 4)),
            marks_by_pair(("t", "d"), ((2, 2), (4, 1))),
            {"b": 1},
            model=FEW_LAYERS,
        ),
    ),
    "fig_microbatch": (
        Experiment(
            "Microbatch size",
            "Throughput against the microbatch size b for two batch sizes; p=2, t=2",
            lines_by_batch((4, 8)),
            tuple(Mark(f"b={b}", {"b": b}) for b in (1, 2, 4)),
            {"p": 2, "t": 2},
            model=FEW_LAYERS,
        ),
    ),
    "fig_recomputation": (
        Experiment(
            "Activation recomputation",
            "Sequences per second against the batch size, with full recomputation and without; p=4, t=1, b=1",
            (
                Line("With recomputation", "full", {"recompute": "full"}),
                Line("Without recomputation", "none", {"recompute": "none"}),
            ),
            marks_by_batch((1, 4, 16)),
            {"p": 4, "b": 1},
        ),
        Experiment(
            "Activation recomputation",
            "Sequences per second against the batch size, one microbatch of which is an iteration (B=b), with full "
            "recomputation and without",
            (
                Line("With recomputation", "full", {"recompute": "full"}),
                Line("Without recomputation", "none", {"recompute": "none"}),
            ),
            tuple(Mark(f"B={B}", {"B": B, "b": B}) for B in (1, 4, 16, 64)),
            scales=(GPU,),
        ),
    ),
    "table_weak_scaling": (
        Experiment(
            "Weak-scaling throughput",
            "Throughput per rank and in all, of models that grow with the number of ranks",
            (Line("", "rank", {}),),
            (
                Mark("1 rank", {"gpus": 1, "layers": 2, "hidden": 128, "heads": 4, "B": 2}),
                Mark("2 ranks", {"gpus": 2, "t": 2, "layers": 2, "hidden": 192, "heads": 6, "B": 4}),
                Mark("4 ranks", {"gpus": 4, "t": 2, "p": 2, "layers": 4, "hidden": 192, "heads": 6, "B": 8}),
            ),
            {"b": 1},
            scales=(CPU,),
        ),
        Experiment(
            "Weak-scaling throughput",
            "Throughput per rank and in all, of models that grow with the number of ranks",
            (Line("", "rank", {}),),
            (
                Mark("1 rank", {"gpus": 1, "layers": 16, "hidden": 1536, "heads": 16, "B": 16}),
                Mark("2 ranks", {"gpus": 2, "t": 2, "layers": 16, "hidden": 2304, "heads": 24, "B": 32}),
                Mark("4 ranks", {"gpus": 4, "t": 4, "layers": 30, "hidden": 2304, "heads": 24, "B": 64}),
            ),
            {"b": 4},
            scales=(GPUS,),
        ),
    ),
    "table_zero3": (PTDP_AND_ZERO3,),
    "fig_zero3": (PTDP_AND_ZERO3,),
    "table_checkpoint": tuple(
        Experiment(
            "Checkpoint bandwidth",
            "Size of a checkpoint, and how fast it is saved and loaded, by the ranks that do it",
            (Line("", "ranks", {}),),
            marks,
            {"b": 1, "B": 4},
            (scale,),
            model,
            how="Parameters and optimizer state of a small GPT on {on}, in the folder of the results.",
        )
        for scale, marks, model in (
            (CPU, CHECKPOINTED, {"layers": 4, "hidden": 512, "heads": 8, "vocab": 1024}),
            (GPU, CHECKPOINTED[:1], {}),
            (GPUS, CHECKPOINTED, {}),
        )
    ),
    "fig_microbatch_single_gpu": (
        Experiment(
            "Throughput versus microbatch size",
            "Throughput of one rank against the microbatch size; every iteration is one microbatch (B=b)",
            (Line("", "rank", {}),),
            tuple(Mark(f"b={b}", {"b": b, "B": b}) for b in (1, 2, 4, 8, 16)),
            {"d": 1},
            scales=(CPU,),
            model=FEW_LAYERS,
        ),
        Experiment(
            "Throughput versus microbatch size",
            "Throughput of the paper's model with a billion parameters (4 layers, hidden size 4096, 128 heads) against "
            "the microbatch size; every iteration is one microbatch (B=b)",
            (Line("", "rank", {}),),
            tuple(Mark(f"b={b}", {"b": b, "B": b}) for b in (1, 2, 4, 8, 16)),
            scales=(GPU,),
            model={"layers": 4, "hidden": 4096, "heads": 128, "seq": 2048},
            claims=("up_to_1_3_times",),
        ),
    ),
}
