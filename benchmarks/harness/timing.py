"""Timing: warm-up, a device that is waited for, every sample kept, and a canary that tells a disturbed machine.

    found = measure(lambda: a @ b, device="cuda", samples=20)
    found.median, found.minimum, found.quantile(0.9), found.seconds

Samples are in seconds. A *device* timer gives the device's own time: on a GPU between two events, with cold caches and
with the launches queued ahead, so that the host's time is not in it. A *wall* timer gives the time that the host waits.
On a CPU the two are the same. Importing this module loads no torch.
"""

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SAMPLES, WARM_UP = 20, 3
LEAST_SAMPLES = 3  # however slow the machine is
CANARY_SIZE, CANARY_SAMPLES = 512, 7
DISTURBED = 1.10  # a canary this much slower than another one of the same session: something else ran
FLUSH_BYTES = 256 * 2**20  # more than any cache: what a sample reads comes from memory
FLUSHES = 8  # about a millisecond of work, in which the host launches all of what is timed


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Step:
    """What is timed: `run`, given what `prepare` made. `prepare` precedes every sample and is not timed."""

    run: Callable[[Any], object]
    prepare: Callable[[], Any] = _nothing

    @classmethod
    def of(cls, call: Callable[[], object]) -> "Step":
        """A step that needs no preparation."""
        return cls(lambda _: call())


Timer = Callable[[Step], float]


@dataclass(frozen=True)
class Samples:
    """Every sample of one thing, in seconds, in the order they were taken; at least one."""

    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.seconds:
            raise ValueError("seconds=() holds no sample; needs at least one; try samples=20")

    @property
    def minimum(self) -> float:
        """The fastest: what disturbs a machine only ever adds time."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The middle of the samples."""
        return statistics.median(self.seconds)

    def per(self, count: int) -> "Samples":
        """Samples of one of `count` equal things that were timed together."""
        return Samples(tuple(seconds / count for seconds in self.seconds))

    def quantile(self, share: float) -> float:
        """The time that `share` (0 to 1) of the samples do not exceed, interpolated between neighbours."""
        if not 0 <= share <= 1:
            raise ValueError(f"share={share} is no share; needs 0 <= share <= 1; try share=0.9")
        ordered = sorted(self.seconds)
        place = share * (len(ordered) - 1)
        low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
        return low + (high - low) * (place - math.floor(place))


def wall_timer(device: "torch.device | str" = "cpu") -> Timer:
    """Seconds the host waits for a step; a GPU is synchronised before and after."""
    wait = _synchroniser(device)

    def timer(step: Step) -> float:
        prepared = step.prepare()
        wait()
        start = time.perf_counter()
        step.run(prepared)
        wait()
        return time.perf_counter() - start

    return timer


def device_timer(device: "torch.device | str" = "cpu") -> Timer:
    """The device's own seconds of a step: between two events on a GPU, with cold caches; on a CPU the wall timer."""
    if not is_gpu(device):
        return wall_timer(device)
    import torch

    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)

    def timer(step: Step) -> float:
        prepared = step.prepare()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(FLUSHES):
            flush.zero_()
        start.record()
        step.run(prepared)
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    return timer


def take_turns(
    steps: Mapping[str, Step],
    timer: Timer,
    rounds: int = SAMPLES,
    warm_up: int = WARM_UP,
    limit_s: float = math.inf,
) -> dict[str, Samples]:
    """`rounds` samples of each step, in rounds, so that what disturbs the machine disturbs all alike.

    The order within a round is random, from a fixed seed. The rounds of the warm-up are not kept. Beyond the first
    three, no round begins when the samples add up to more than `limit_s` seconds. (Their sum decides, and no clock:
    ranks that share their times stop together.)
    """
    if rounds < 1:
        raise ValueError(f"rounds={rounds} measures nothing; needs rounds >= 1; try rounds={SAMPLES}")
    for _ in range(warm_up):
        for step in steps.values():
            timer(step)
    taken: dict[str, list[float]] = {name: [] for name in steps}
    order, generator = list(steps.items()), random.Random(0)  # the same on all ranks
    for done in range(rounds):
        if done >= LEAST_SAMPLES and sum(map(sum, taken.values())) > limit_s:
            break
        generator.shuffle(order)
        for name, step in order:
            taken[name].append(timer(step))
    return {name: Samples(tuple(seconds)) for name, seconds in taken.items()}


def measure(
    call: Callable[[], object],
    device: "torch.device | str" = "cpu",
    *,
    samples: int = SAMPLES,
    warm_up: int = WARM_UP,
    limit_s: float = math.inf,
    timer: Timer | None = None,
) -> Samples:
    """Samples of `call` on `device`, by its device timer unless another one is given."""
    return take_turns({"": Step.of(call)}, timer or device_timer(device), samples, warm_up, limit_s)[""]


def canary(device: "torch.device | str" = "cpu") -> Samples:
    """A small fixed matrix product: the same work at any time, so that its time tells whether the machine is quiet.

    Take it before and after what matters; `disturbed` compares them.
    """
    import torch

    a = torch.full((CANARY_SIZE, CANARY_SIZE), 0.5, device=device)
    return measure(lambda: a @ a, device, samples=CANARY_SAMPLES)


def disturbed(before: Samples, after: Samples) -> bool:
    """Whether the medians of two canaries are more than 10% apart: times taken between them are in doubt."""
    slow, fast = max(before.median, after.median), min(before.median, after.median)
    return slow > DISTURBED * fast


def is_gpu(device: "torch.device | str") -> bool:
    """Whether this names a CUDA device."""
    return str(device).startswith("cuda")


def _synchroniser(device: "torch.device | str") -> Callable[[], None]:
    if not is_gpu(device):
        return _nothing
    import torch

    return lambda: torch.cuda.synchronize(device)
