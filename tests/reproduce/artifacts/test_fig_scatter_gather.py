"""Figure 18: the default schedule is in the table, and not in the figure."""

import pytest

from reproduce.output import theme
from reproduce.papers.sc21 import fig_scatter_gather as module


def test_the_default_schedule_is_not_drawn(record):
    with theme.style():
        figure = module.draw(module.ARTIFACT, record)
    names = {line.get_label() for line in figure.axes[0].lines}
    assert names == {name + end for name in (module.ON, module.OFF) for end in ("", " (paper)")}
    assert {point.series for point in record.points} > {module.DEFAULT_OFF}
    assert any("not in the paper's figure" in note for note in record.notes)
    sent = {p.key: p.metrics["pipeline_traffic"].value for p in record.points}
    assert sent["unoptimized_B60"] == pytest.approx(8 * sent["scatter_gather_B60"])
