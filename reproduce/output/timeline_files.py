"""The files of a timeline: figure, trace and table."""

from collections.abc import Sequence

from ptdp_core.schedules import Schedule
from reproduce.output import theme
from reproduce.output.timeline import Timeline
from reproduce.output.timeline_figure import draw
from reproduce.output.timeline_titles import title
from reproduce.output.traces import trace

MAX_BOXES = 4000  # in a figure; with more, neither boxes nor rows can be told apart


def timeline_files(schedule: Schedule, timeline: Timeline) -> tuple[dict[str, bytes], list[str]]:
    """Figure (if it can be read), trace and table of a schedule, by name, and notes on what was left out."""
    figures, notes = figure_files([timeline], title(timeline), memory=True)
    return figures | {"trace.json": trace([timeline]), "schedule.csv": schedule.to_csv().encode()}, notes


def figure_files(timelines: Sequence[Timeline], name: str, memory: bool = False) -> tuple[dict[str, bytes], list[str]]:
    """The figure of timelines, if it can be read, and a note if it cannot."""
    boxes = sum(timeline.boxes for timeline in timelines)
    if boxes > MAX_BOXES:
        return {}, [f"no figure: {boxes} boxes, more than {MAX_BOXES}; open trace.json in https://ui.perfetto.dev"]
    with theme.style():
        return theme.figure_files(draw(timelines, memory=memory), name), []
