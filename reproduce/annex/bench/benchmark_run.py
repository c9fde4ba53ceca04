"""Runs a benchmark between two canaries and makes a record of its points."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from typing import Protocol, cast

from benchmarks.harness.benchmark_list import BENCHMARKS, CANARY, NOT_QUIET, Benchmark
from benchmarks.harness.device_setup import QUICK_SAMPLES, Setup
from benchmarks.harness.points import seconds
from benchmarks.harness.timing import SAMPLES, Samples, canary, disturbed, is_gpu
from results.records import PaperPlace, PointResult, Record, fingerprint
from results.records.errors import UnavailableError, UsageError, did_you_mean
from results.records.provenance import collect

SEED = 2021
QUIET_SHARE = 0.9


class Suite(Protocol):
    """The module of a benchmark, which measures."""

    def points(self, setup: Setup) -> Iterator[PointResult]: ...


def load(benchmark: Benchmark) -> Suite:
    """Import a benchmark's module, and with it what that needs (torch as a rule)."""
    return cast(Suite, import_module(f"reproduce.annex.bench.{benchmark.name}"))


def find(name: str) -> tuple[Benchmark, str]:
    """The benchmark of that name, and the name of its point that may follow a slash: `gpu_step/small`, else "".

    Raises `UsageError` with the nearest name if there is none.
    """
    name, _, point = name.partition("/")
    if name not in BENCHMARKS:
        hint = did_you_mean(name, tuple(BENCHMARKS))
        raise UsageError(f"unknown benchmark {name!r}{hint} (reproduce bench list shows all)")
    if point and point not in (known := getattr(load(BENCHMARKS[name]), "NAMES", ())):
        there = f"{did_you_mean(point, known)}; there are {', '.join(known)}"
        raise UsageError(f"unknown point {point!r} of {name}{there if known else f'; it runs whole; try {name}'}")
    return BENCHMARKS[name], point


def choose_device(asked: str | None) -> str:
    """'cpu' or 'cuda': the one that is asked for, else a GPU if there is one.

    Raises `UnavailableError` if a GPU is asked for and there is none.
    """
    import torch

    there = torch.cuda.is_available()
    if asked is not None and is_gpu(asked) and not there:
        raise UnavailableError(f"device={asked} cannot be used; needs a GPU that PyTorch sees; try --device cpu")
    return asked or ("cuda" if there else "cpu")


def run(
    benchmark: Benchmark, device: str, quick: bool, command: Sequence[str], tell: Callable[[str], None], only: str = ""
) -> Record:
    """Run a benchmark, or `only` one point, and return its record. `tell` gets a text about the progress after each.

    A point that cannot be measured is in the record, too, with the reason.
    """
    import torch

    device = device if benchmark.uses_device else "cpu"
    setup = Setup(device, quick, QUICK_SAMPLES if quick else SAMPLES, (only,) if only else ())
    started, clock = datetime.now(UTC), time.perf_counter()
    torch.manual_seed(SEED)
    suite = load(benchmark)
    with _one_thread():
        before, share = canary(setup.device), _share_of_core()
        points = []
        for point in suite.points(setup):
            points.append(point)
            tell(f"{benchmark.name}: {len(points)} done, last {point.key}")
        after = canary(setup.device)
    where = torch.cuda.get_device_name() if setup.on_gpu else "CPU, one thread per process"
    own = (note.format(**vars(suite)) for note in benchmark.notes)
    notes = [f"Device: {where}.", *own, "Values are medians of the samples, unless said otherwise."]
    if share < QUIET_SHARE:
        notes.append(f"{NOT_QUIET}: a process that computes got {share:.0%} of a core.")
    if disturbed(before, after):
        notes.append(f"{NOT_QUIET}: the canary took {before.median:.2e} s before and {after.median:.2e} s after.")
    return Record(
        kind="benchmark",
        id=benchmark.name,
        title=benchmark.title[0].upper() + benchmark.title[1:],
        paper=PaperPlace(benchmark.section) if benchmark.section else None,
        fidelity="measured",
        scale="quick" if quick else "full",
        state="complete",
        provenance=collect(command, started, time.perf_counter() - clock, SEED, packages=("triton",)),
        points=(*points, _canary_point(setup, "before", before), _canary_point(setup, "after", after)),
        notes=tuple(notes),
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread, as the engine's ranks do on a CPU: on a busy machine two threads wait for each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _share_of_core() -> float:
    """CPU time over wall time of this process while it does nothing but compute for a tenth of a second."""
    start, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() < start + 0.1:
        pass
    return (time.process_time() - cpu) / (time.perf_counter() - start)


def _canary_point(setup: Setup, label: str, samples: Samples) -> PointResult:
    known = {"device": setup.device}
    return PointResult(
        f"{CANARY}/{label}", CANARY, label, known, "ok", None, fingerprint(known), {"time": seconds(samples)}
    )
