"""Beyond the papers: throughput per GPU from 32 GPUs (SC'21) to 16,384 (Llama 3), published and simulated.

One simulator, three descriptions of machine and program: Selene's of 2021, a100-80, DGX A100s with a later program, and
h100 with Llama 3's.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptdp_core.formulas import flops_per_iteration, model_flops_per_iteration
from reproduce.annex.papers.llama3 import table_4
from reproduce.annex.papers.megascale import table_2
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.sized import model_of
from reproduce.experiment.sweep import Point
from reproduce.experiment.told import told
from reproduce.output import theme
from reproduce.output.chart import chart_data, interval_label, numbers, of_series
from reproduce.output.figures import (
    draw_others,
    finish,
    label_axes,
    legend_keys,
    series_lines,
    series_styles,
)
from reproduce.papers.sc21.table_weak_scaling import ARTIFACT as TABLE_1
from results.records import PaperValue, Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SC21, MEGASCALE = "Megatron-LM 2021, weak scaling", "Megatron-LM 2024, 175B, B = {B}"
LLAMA, LONG = "Llama 3 2024, 405B, H100", "Llama 3 2024, 405B, H100, sequences of 131,072"
# What is written beside a series, on which side of its points, and at which of its ends.
WORDS = {
    SC21: ("2021, A100, 1.7B to 1T", "below", "left"),
    MEGASCALE.format(B=768): ("2024, A100, 175B, B = 768", "above", "right"),
    MEGASCALE.format(B=6144): ("B = 6144", "above", "left"),
    LLAMA: ("Llama 3 405B, H100", "above", "right"),
    LONG: ("131,072 tokens", "below", "right"),
}


def points() -> tuple[Point, ...]:
    """Table 1 of the first paper, Megatron-LM's rows of MegaScale's Table 2, Llama 3's with its stated program."""
    rows = [row for row in published.rows(table_2.ID) if row["method"] == table_2.MEGATRON]
    return (*map(_of_sc21, TABLE_1.points()), *map(_of_megascale, rows), *map(_of_llama, published.rows(table_4.ID)))


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


def _of_llama(row: dict[str, Any]) -> Point:
    """A row of Llama 3's table, whose throughput is printed."""
    values = published.paper_values(table_4.ID, row)
    return Point(
        f"llama3_{row['gpus']}_{row['seq']}",
        LONG if row["c"] > 1 else LLAMA,
        str(row["gpus"]),
        {**table_4.configuration(row), "cluster": "h100"},
        {q.MODEL_THROUGHPUT.name: values[q.MODEL_THROUGHPUT.name]},
    )


def draw(artifact: Artifact, record: Record) -> "Figure":
    """A line plot whose series have their names beside them."""
    data = chart_data(artifact, {"": record})
    styles = series_styles(artifact, data)
    keys = legend_keys(data, interval_label(artifact, [record]), alone=True)
    figure = theme.new_figure()
    axes = figure.subplots()
    series_lines(axes, data, styles, "bars")
    handles = draw_others(axes, data, styles, keys)
    label_axes(axes, artifact, data)
    for name, (words, side, align) in WORDS.items():
        line = of_series(data, name)
        if not line:
            continue
        reach = numbers(line, "value", "low", "high", "paper")
        y, up = (max(reach), 1) if side == "above" else (min(reach), -1)
        x = line[-1 if align == "right" else 0].x
        axes.annotate(
            words, (x, y), (0, 4 * up), textcoords="offset points", ha=align, va="bottom" if up > 0 else "top",
            color=styles[name]["color"], annotation_clip=False,
        )  # fmt: skip
    finish(figure, handles, theme.legend_columns(list(handles), theme.figure_width()), artifact, record)
    return figure


ARTIFACT = told(__name__, points=points, draw=draw)
