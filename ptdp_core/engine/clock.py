"""Clocks for timelines: when a rank's device begins and ends its work, in seconds of the machine's monotonic clock.

They take times in two steps: `mark` where something begins or ends, `seconds` when all of the work is done. Reading a
GPU's time makes the host wait. So marks are read only when the timeline is complete.
"""

import time

import torch


class HostClock:
    """Clock of a CPU, where work is done when the call that asks for it returns."""

    def mark(self) -> float:
        """The present time."""
        return time.monotonic()

    def seconds(self, mark: float) -> float:
        """The time of a mark, which is the mark itself."""
        return mark


class EventClock:
    """Clock of a GPU, which runs behind the host: marks are events on its compute stream.

    On this clock a pass begins when its input has arrived on the device, not when the host queues it. The host does not
    wait for the device before `seconds` is called.
    """

    def __init__(self, device: torch.device) -> None:
        torch.cuda.synchronize(device)  # on an idle device the event and the host's time below are the same moment
        self._origin = self.mark()
        self._start = time.monotonic()

    def mark(self) -> torch.cuda.Event:
        """An event that happens when the device has done all work that was queued before."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, mark: torch.cuda.Event) -> float:
        """Wait for a mark, and return its time: the clock's creation plus what the device measured since then."""
        mark.synchronize()
        return self._start + self._origin.elapsed_time(mark) / 1e3


def clock_of(device: torch.device) -> HostClock | EventClock:
    """The clock for a device: events on a GPU, the host's clock on a CPU."""
    return EventClock(device) if device.type == "cuda" else HostClock()
