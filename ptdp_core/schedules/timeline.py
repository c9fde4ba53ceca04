"""The type of an interval of any timeline: executed in exact arithmetic, simulated, emulated, run or drawn."""

from fractions import Fraction
from typing import Generic, NamedTuple, TypeVar

from ptdp_core.schedules.actions import Action
from ptdp_core.schedules.program import Exchange

Time_co = TypeVar("Time_co", bound=float | Fraction, covariant=True)


class TimelineEvent(NamedTuple, Generic[Time_co]):
    """One thing that a pipeline rank did, from `start` to `end`. Time that no event covers is idle.

    `kind` is that of a pass (`actions.KINDS`), which `action` names, or 'exchange', 'data_parallel', 'optimizer' or
    'host', whose action is None. `exchange` has the messages of an executed exchange where they are known. The unit of
    the times depends on the timeline: an exact one has integers or fractions of t_f, all others seconds (picoseconds
    inside the simulator).
    """

    kind: str
    action: Action | None
    start: Time_co
    end: Time_co
    exchange: Exchange | None = None
