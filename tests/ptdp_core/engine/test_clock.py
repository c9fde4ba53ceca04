"""The clock of timelines, and on a GPU (which is pretended here) what it asks of the compute stream."""

from itertools import count

import torch

from ptdp_core.engine import clock


class Event:
    """A CUDA event, at times that are made up: the device is slow, the host is fast."""

    numbers = count()

    def __init__(self, enable_timing):
        assert enable_timing
        self.time, self.waited = -1.0, False

    def record(self):
        self.time = 500.0 * next(self.numbers)

    def synchronize(self):
        self.waited = True

    def elapsed_time(self, other):
        assert other.waited
        return other.time - self.time


def test_on_a_gpu_marks_are_events_and_nothing_is_waited_for_before_the_end(monkeypatch):
    """A clock that synchronised at each mark would wait for receives posted ahead, and stop what it measures."""
    synchronised = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronised.append)
    monkeypatch.setattr(clock.time, "monotonic", lambda: 100.0)
    gpu = torch.device("cuda", 0)
    watch = clock.clock_of(gpu)
    marks = [watch.mark() for _ in range(3)]
    assert synchronised == [gpu]  # when it was made
    assert not any(mark.waited for mark in marks)
    assert [watch.seconds(mark) for mark in marks] == [100.5, 101.0, 101.5]


def test_on_a_cpu_a_mark_is_the_time(monkeypatch):
    times = iter([1.0, 2.5])
    monkeypatch.setattr(clock.time, "monotonic", lambda: next(times))
    watch = clock.clock_of(torch.device("cpu"))
    first, second = watch.mark(), watch.mark()
    assert (watch.seconds(first), watch.seconds(second)) == (1.0, 2.5)
