"""Figure 10: throughput per GPU of PTD-P and ZeRO-3 against the number of GPUs; the points of Table 2."""

from itertools import chain, pairwise
from math import fsum
from typing import TYPE_CHECKING, Any

from ptdp_core.formulas import parameters, ring_factor
from ptdp_core.simulator import read_parameters
from ptdp_core.simulator.kernels import FP16_BYTES
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import Judgement, consistent_if, holds_if
from reproduce.experiment.results import Results, listed, word
from reproduce.experiment.sized import model_of
from reproduce.experiment.sweep import PAPER
from reproduce.experiment.told import told
from reproduce.output import theme
from reproduce.output.chart import chart_data, in_panels, interval_label, numbers
from reproduce.output.figures import (
    draw_others,
    finish,
    label_axes,
    legend_keys,
    line_plot,
    series_lines,
    series_styles,
)
from reproduce.papers.sc21 import table_zero3
from reproduce.papers.sc21.table_zero3 import MODELS, PTDP, ZERO3, along, key_of
from results.records import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(artifact: Artifact, record: Record) -> "Figure":
    """Beside each other both models. Where ZeRO-3's intervals, a factor of 2.7, leave the axes, ends are told.

    What was measured, with one model, is a line plot.
    """
    if record.scale != PAPER:
        return line_plot(artifact, record)
    data = chart_data(artifact, {"": record})
    of_model = in_panels(data, ", ")
    styles = series_styles(artifact, sorted(chain(*of_model.values()), key=lambda mark: mark.series))
    keys = legend_keys(data, interval_label(artifact, [record]), alone=True)
    figure = theme.new_figure(theme.PAGE)
    handles: dict[str, Any] = {}
    panels = figure.subplots(1, len(of_model), sharey=True, squeeze=False)[0]
    for axes, letter, (model, rows) in zip(panels, "ab", of_model.items(), strict=False):
        handles |= series_lines(axes, rows, styles, "bars") | draw_others(axes, rows, styles, keys)
        label_axes(axes, artifact, rows)
        axes.label_outer()
        theme.name_panel(axes, letter, f"{model} parameters")
    top = 1.2 * max(numbers(data, "value", "paper"))
    panels[0].set_ylim(0, top)
    for panel, rows in zip(panels, of_model.values(), strict=True):
        for mark in rows:
            if mark.high is not None and mark.high > top:
                text = f"to {mark.high:.0f}"
                panel.annotate(text, (mark.x, top), (3, 0), textcoords="offset points", va="top", fontsize=5.5)
    finish(figure, handles, theme.legend_columns(list(handles), theme.figure_width(theme.PAGE)), artifact, record)
    return figure


ARTIFACT = told(
    __name__,
    points=table_zero3.rows,
    sweeps={**table_zero3.MEASURED},
    quantities=table_zero3.QUANTITIES,
    further=table_zero3.training_time,
    draw=draw,
)


@ARTIFACT.judge
def scales_more_gracefully(results: Results) -> Judgement:
    kept, whole = {}, {}
    for model in MODELS:
        for scheme in (PTDP, ZERO3):
            line = along(results, scheme, model, q.THROUGHPUT)
            kept[scheme, model] = {n: line[n] / line[fewer] for fewer, n in pairwise(line)}
            whole[word(f"{scheme}, {model}")] = line[max(line)] / line[min(line)]
    text = "throughput per GPU over that on the next fewer GPUs: " + "; ".join(
        f"{scheme}, {model}: {listed(shares, '{:.0%}')}" for (scheme, model), shares in kept.items()
    )
    numbers = results.numbers(**whole)
    return holds_if(all(kept[PTDP, m][n] > kept[ZERO3, m][n] for m in MODELS for n in kept[PTDP, m]), text, numbers)


@ARTIFACT.judge
def less_cross_node_communication(results: Results) -> Judgement:
    ratios: dict[str, float] = {}
    largest: dict[str, float] = {}
    for model in MODELS:
        uses = ("pipeline_traffic", "data_traffic", "embedding_traffic")
        lines = [along(results, PTDP, model, use) for use in uses]
        gathered = along(results, ZERO3, model, "data_traffic")
        for n in list(lines[0])[1:]:
            ours, theirs = fsum(line[n] for line in lines), gathered[n] / published.gpus_per_node()
            ratios[f"{model} on {n}"] = theirs / ours
            largest |= {key_of(PTDP, model, n): ours, key_of(ZERO3, model, n): theirs}
    text = f"cross-node bytes per GPU and iteration, ZeRO-3 over PTD-P: {listed(ratios, '{:.1f}')}"
    return holds_if(min(ratios.values()) > 1, text, results.numbers("B", **largest))


@ARTIFACT.judge
def additional_communication(results: Results) -> Judgement:
    ratios = {}
    for model in MODELS:
        (point, *_) = results.of(f"{ZERO3}, {model}")
        size = FP16_BYTES * parameters(model_of(point.parameters))
        for n, sent in along(results, ZERO3, model, "data_traffic").items():
            ratios[f"{model} on {n}"] = sent / (2 * ring_factor(n) * size)
    text = f"ZeRO-3's bytes over an all-reduce's: {listed(ratios, '{:.2f}')}"
    return holds_if(min(ratios.values()) > 1, text, results.numbers(least_ratio=min(ratios.values())))


@ARTIFACT.judge
def partially_hidden(results: Results) -> Judgement:
    bandwidth = read_parameters("selene")["zero3_bandwidth"].value
    exposed = {}
    for model in MODELS:
        sent, seconds = (along(results, ZERO3, model, name) for name in ("data_traffic", "data_parallel_time"))
        exposed[model] = seconds[min(seconds)] / (sent[min(sent)] / bandwidth)
    text = f"share of ZeRO-3's communication that is exposed on the fewest GPUs: {listed(exposed, '{:.0%}')}"
    holds = all(0 < share < 1 for share in exposed.values())
    return holds_if(holds, text, results.numbers(exposed_share=exposed))


@ARTIFACT.judge
def fixed_batch_sizes(results: Results) -> Judgement:
    batches = {name: {point.parameters["B"] for point in results.of(name)} for name in results.series_names}
    changed = {series: sorted(sizes) for series, sizes in batches.items() if len(sizes) > 1}
    text = "; ".join(
        f"{series}: B = {' and '.join(map(str, sizes))} in Table 2, whose caption says so"
        for series, sizes in changed.items()
    )
    return consistent_if(not changed, text or "one batch size along every line")
