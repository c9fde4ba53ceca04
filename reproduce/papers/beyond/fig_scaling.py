"""Beyond the papers: throughput per GPU from 32 GPUs (SC'21) to 12,288 (NSDI'24), published and simulated.

One simulator, two descriptions of machine and program: Selene's of 2021, and a100-80, DGX A100s with a later program.
"""

from dataclasses import replace
from typing import Any

from ptdp_core.formulas import flops_per_iteration, model_flops_per_iteration
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.sweep import Point, Sweep
from reproduce.output.figures import line_plot
from reproduce.papers.megascale import table_2
from reproduce.papers.sc21.table_weak_scaling import ARTIFACT as TABLE_1
from reproduce.papers.shared.models import model_of
from results.records import PaperValue

SC21, MEGASCALE = "Megatron-LM 2021, weak scaling", "Megatron-LM 2024, 175B, B = {B}"


def points() -> tuple[Point, ...]:
    """Table 1 of the first paper, and Megatron-LM's rows of MegaScale's Table 2 with the flags fixed beforehand."""
    rows = [row for row in published.rows(table_2.ID) if row["method"] == table_2.MEGATRON]
    return (*map(_of_sc21, TABLE_1.points()), *map(_of_megascale, rows))


def _of_sc21(point: Point) -> Point:
    """A model of Table 1: its throughput counts a recomputed forward pass, which is taken off."""
    model, printed = model_of(point.parameters), point.paper[q.THROUGHPUT.name]
    B = point.parameters["B"]
    share = model_flops_per_iteration(model, B) / flops_per_iteration(model, B)
    value = replace(printed, value=printed.value * share, quantum=(printed.quantum or 0) * share)
    gpus = point.parameters["gpus"]
    return replace(point, series=SC21, label=str(gpus), paper={q.MODEL_THROUGHPUT.name: value})


def _of_megascale(row: dict[str, Any]) -> Point:
    """A row of MegaScale's table: its throughput follows from the iteration time."""
    parameters = table_2.configuration(table_2.ID, row)
    seconds = row["iteration_time"]
    flops = model_flops_per_iteration(model_of(parameters), row["B"]) / row["gpus"]
    return Point(
        f"megascale_{row['gpus']}",
        MEGASCALE.format(B=row["B"]),
        str(row["gpus"]),
        {**parameters, "cluster": "a100-80"},
        {q.MODEL_THROUGHPUT.name: PaperValue(flops / seconds, "FLOP/s", "table", quantum=flops / seconds**2 * 0.1)},
    )


ARTIFACT = Artifact(
    id="fig_scaling",
    title="Throughput per GPU from 32 GPUs in 2021 to 12,288 in 2024",
    description=(
        "Model FLOP/s per GPU of Megatron-LM: the ten models of 2021 on 32 to 3,072 A100s, and a 175B model on 256 to "
        "12,288 in 2024 with two batch sizes, as published and as one simulator gives them."
    ),
    quantities=(q.MODEL_THROUGHPUT, q.MFU, q.ITERATION, q.PEAK_MEMORY),
    sweeps={"paper": Sweep(points)},
    columns={"gpus": "n", "t": "t", "p": "p", "B": "B"},
    x_axis=q.XAxis("gpus", "Number of GPUs", scale="log2"),
    tolerance=0.10,
    draw=line_plot,
    notes=(
        "Published throughputs of 2021 count a recomputed forward pass; here they are the model's FLOPs alone. Flags "
        "of 2024, simulated on a100-80, are not printed: those fixed beforehand.",
    ),
)
