"""Times calls: it warms up, waits for the device, and keeps every sample. A canary shows whether the machine was quiet.

    samples = measure(lambda: a @ b, device="cuda", samples=20)
    samples.median, samples.minimum, samples.quantile(0.9), samples.seconds

Samples are in seconds. A *device* timer measures the device's own time: on a GPU between two events, with cold caches
and with the launches queued ahead, so that the host's time is not in it. A *wall* timer measures how long the host
waits. On a CPU the two are the same. Importing this module loads no torch.
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
LEAST_SAMPLES = 3  # how many samples are taken even where they exceed the time limit
CANARY_SAMPLES = 7
# Size and number of the canary's products. On a GPU they take 2 ms at 1 PFLOP/s: shorter ones tell launches, not load.
CPU_CANARY, GPU_CANARY = (512, 1), (4096, 16)
DISTURBED = 1.10  # a canary that is slower by this factor than another one of its session was disturbed
FLUSH_BYTES = 256 * 2**20  # larger than any cache, so that a sample reads its inputs from memory
FLUSHES = 8  # these take the GPU about a millisecond, in which the host launches everything that is timed


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Step:
    """A call that is timed. Before every sample, `prepare()` is called untimed; `run` gets its result."""

    run: Callable[[Any], object]
    prepare: Callable[[], Any] = _nothing

    @classmethod
    def of(cls, call: Callable[[], object]) -> "Step":
        """A step that calls `call` and needs no preparation."""
        return cls(lambda _: call())


Timer = Callable[[Step], float]


@dataclass(frozen=True)
class Samples:
    """All samples of one step, in seconds, in the order in which they were taken. There is at least one."""

    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.seconds:
            raise ValueError("seconds=() holds no sample; needs at least one; try samples=20")

    @property
    def minimum(self) -> float:
        """The fastest sample: a disturbance only ever adds time."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The median sample."""
        return statistics.median(self.seconds)

    def per(self, count: int) -> "Samples":
        """The samples divided by `count`: those of one of `count` equal calls that were timed together."""
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
    """A timer of the seconds that the host waits for a step. A GPU is synchronised before and after."""
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
    """A timer of the device's own seconds: between two events on a GPU, with cold caches; on a CPU the wall timer."""
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
    """Take `rounds` samples of each step, one of each in a round, so that a disturbance of the machine hits all alike.

    The order within a round is random, from a fixed seed. The rounds of the warm-up are not kept. After the first
    three, no further round begins once the samples add up to more than `limit_s` seconds. (Their sum decides, not a
    clock, so that ranks which share their times stop together.)
    """
    if rounds < 1:
        raise ValueError(f"rounds={rounds} measures nothing; needs rounds >= 1; try rounds={SAMPLES}")
    for _ in range(warm_up):
        for step in steps.values():
            timer(step)
    taken: dict[str, list[float]] = {name: [] for name in steps}
    order, generator = list(steps.items()), random.Random(0)  # a fixed seed: the order is the same on all ranks
    for finished_rounds in range(rounds):
        if finished_rounds >= LEAST_SAMPLES and sum(map(sum, taken.values())) > limit_s:
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
    """Take samples of `call` on `device`, with the device timer unless another one is given."""
    return take_turns({"": Step.of(call)}, timer or device_timer(device), samples, warm_up, limit_s)[""]


def canary(device: "torch.device | str" = "cpu") -> Samples:
    """Time matrix products, always the same, whose time shows whether the machine is quiet.

    Call it before and after a measurement and compare the two with `disturbed`.
    """
    import torch

    size, products = GPU_CANARY if is_gpu(device) else CPU_CANARY
    a = torch.full((size, size), 0.5, device=device)
    return measure(lambda: [a @ a for _ in range(products)], device, samples=CANARY_SAMPLES)


def disturbed(before: Samples, after: Samples) -> bool:
    """Whether the medians of two canaries are more than 10% apart, which puts the times between them in doubt."""
    slow, fast = max(before.median, after.median), min(before.median, after.median)
    return slow > DISTURBED * fast


def is_gpu(device: "torch.device | str") -> bool:
    """Whether `device` names a CUDA device."""
    return str(device).startswith("cuda")


def _synchroniser(device: "torch.device | str") -> Callable[[], None]:
    if not is_gpu(device):
        return _nothing
    import torch

    return lambda: torch.cuda.synchronize(device)
