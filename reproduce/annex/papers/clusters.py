"""Line charts of the same series on several clusters, a panel for each."""

from itertools import chain
from typing import TYPE_CHECKING, Any

from reproduce.experiment.artifact import Artifact
from reproduce.output import theme
from reproduce.output.chart import chart_data, in_panels, interval_label, numbers
from reproduce.output.figures import (
    draw_others,
    finish,
    label_axes,
    legend_keys,
    series_lines,
    series_styles,
    spread_of,
)
from results.records import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLUSTERS = {"H100": "h100", "GB200": "gb200"}  # as series name them, and as files do


def draw(artifact: Artifact, record: Record) -> "Figure":
    """Beside each other the series of each cluster, 'SERIES on CLUSTER', each panel with its own y axis from zero."""
    on_clusters = in_panels(chart_data(artifact, {"": record}), " on ")
    data = list(chain(*on_clusters.values()))
    styles = series_styles(artifact, data)
    keys = legend_keys(data, interval_label(artifact, [record]), alone=True)
    spread = spread_of(styles)
    figure = theme.new_figure(theme.PAGE)
    handles: dict[str, Any] = {}
    panels = figure.subplots(1, len(on_clusters), squeeze=False)[0]
    for axes, letter, (cluster, rows) in zip(panels, "ab", on_clusters.items(), strict=False):
        others = draw_others(axes, rows, styles, keys, spread=spread)
        handles |= series_lines(axes, rows, styles, spread) | others
        label_axes(axes, artifact, rows)
        axes.set_ylim(0, 1.05 * max(numbers(rows, "value", "high")))
        theme.name_panel(axes, letter, cluster)
    finish(figure, handles, theme.legend_columns(list(handles), theme.figure_width(theme.PAGE)), artifact, record)
    return figure
