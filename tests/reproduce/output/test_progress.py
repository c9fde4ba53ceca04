"""The time left: from what points are expected to take, and what the finished ones took."""

import sys
from io import StringIO

import pytest

from reproduce.annex.plan import command_plan
from reproduce.output import terminal
from results.visible import VisibleStream


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes where its `now` is set."""

    class Clock:
        now = 0.0

    monkeypatch.setattr(terminal.time, "monotonic", lambda: Clock.now)
    return Clock


def test_time_left_follows_the_pace(clock):
    left = terminal.TimeLeft([10.0, 20.0, 30.0], later=100.0)
    assert left.seconds() == 160
    clock.now = 12.0  # a fifth longer than expected
    left.done()
    assert left.seconds() == pytest.approx(50 * 1.2 + 100)


def test_points_that_were_there_already_say_nothing_of_the_pace(clock):
    left = terminal.TimeLeft([10.0, 20.0])
    clock.now = 0.01
    left.done()
    assert left.seconds() == 20


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "1 s"), (42.4, "42 s"), (99.4, "99 s"), (180, "3 min")])
def test_spoken(seconds, text):
    assert terminal.spoken(seconds) == text


def test_a_line_for_each_point_that_takes_long(clock, capsys):
    with terminal.progress("fig", 2, [30.0, 60.0], later=120.0) as on_point:
        clock.now = 30.0
        on_point("B=4")
        clock.now = 90.0
        on_point("B=8")
    assert capsys.readouterr().err.splitlines() == [
        "fig: 2 points, about 90 s left (all: 4 min)",
        "fig: 1 of 2 done (B=4), about 60 s left (all: 3 min)",
        "fig: 2 of 2 done (B=8) (all: 2 min)",
    ]


def test_one_line_for_points_that_take_no_time(capsys):
    with terminal.progress("fig", 2, [0.0, 0.0]) as on_point:
        on_point("B=4")
    assert capsys.readouterr().err.splitlines() == ["fig: 2 points"]


def test_a_bar_and_a_spinner_move_on_a_terminal_instead_of_spelling_out_how(monkeypatch):
    """Both take stderr's place while they move, so that rich found the stream that makes control characters visible."""

    class Terminal(StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", VisibleStream(stream))
    with terminal.progress("fig", 2) as on_point:
        on_point("B=4")
        on_point("B=8")
    with command_plan._status(quiet=False) as on_step:
        on_step(7)
    text = stream.getvalue()
    assert "2/2" in text
    assert "7 configurations" in text
    assert r"\x1b[2K" not in text
