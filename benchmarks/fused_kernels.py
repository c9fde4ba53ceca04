"""The fused operators of Section 4.2, timed: against eager PyTorch, and against what memory allows.

    python -m benchmarks.fused_kernels [--device cpu|cuda] [--results DIR] [--quick]

Every operator is memory-bound: the least time it can take is the bytes it must read and write over the bandwidth of the
device, measured here as that of a large copy. The table gives, for forward and backward, the time, the share of that
bandwidth, and the speed-up over the reference, eager PyTorch. Also attention in the layouts [b, s, a, h] and
[s, b, a, h]. (A CPU can beat its own copy: with tensors that stay in its cache.)

Shapes are the paper's (175B and 530B parameters, t=8) with sequences of 2048 tokens, or of as many as fit; float16 on a
GPU as in the paper, float32 on a CPU. Implementations take turns, one sample each, and the fastest samples are
compared, because what disturbs a machine only ever adds time; all samples are in the record. Writes record.json,
table.md, table.csv, figure.pdf and figure.png to DIR/fused_kernels/measured/.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks import fused_kernels_report as report
from benchmarks.fused_kernels_cases import Call, Case, Shape, attention, cases, largest_tensor, shapes
from benchmarks.provenance import collect
from benchmarks.records import Metric, PaperPlace, PointResult, Record, atomic_write_bytes, fingerprint, write_record

ID = "fused_kernels"
COPY = "copy"
SEED = 2021
PAPER_SEQUENCE, CPU_SEQUENCE, QUICK_SEQUENCE = 2048, 512, 128
ROUNDS, QUICK_ROUNDS = 25, 5
FLUSH_BYTES = 256 * 2**20  # more than any cache: what a sample reads comes from memory
CPU_COPY_BYTES = 128 * 2**20
FLUSHES = 8  # about a millisecond of work, in which the host launches all of what is timed
OK, CANNOT = 0, 3

Prepare = Callable[[], Any]
Step = tuple[Prepare, Callable[[Any], object]]  # what precedes a sample, and what is timed, given its result
Timer = Callable[[Step], float]


class Copy(NamedTuple):
    """A large copy, which gives the bandwidth of the device; `bytes_moved` counts reads and writes."""

    step: Step
    bytes_moved: int

    @classmethod
    def make(cls, device: torch.device) -> "Copy":
        source = torch.ones(FLUSH_BYTES if device.type == "cuda" else CPU_COPY_BYTES, dtype=torch.int8, device=device)
        target = torch.empty_like(source)
        return cls((lambda: None, lambda _: target.copy_(source)), 2 * source.numel())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print; returns the exit code: 0, 2 for a wrong argument, 3 without the device."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fused_kernels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: cuda if there is one")
    parser.add_argument(
        "--results", type=Path, default=Path("results/runs"), metavar="DIR", help="default results/runs"
    )
    parser.add_argument("--quick", action="store_true", help="one model, short sequences, few samples: a trial run")
    chosen = parser.parse_args(arguments)
    if chosen.device == "cuda" and not torch.cuda.is_available():
        print("device=cuda cannot be used; needs a GPU that PyTorch sees; try --device cpu", file=sys.stderr)
        return CANNOT
    device = torch.device(chosen.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    command = ["python", "-m", "benchmarks.fused_kernels", *(sys.argv[1:] if arguments is None else arguments)]
    record = measure(device, chosen.quick, command)
    folder = chosen.results / ID / "measured"
    write_record(record, folder / "record.json")
    for name, data in report.files(record).items():
        atomic_write_bytes(folder / name, data)
    print(report.table(record))
    print(f"files: {folder}/ (record.json, {', '.join(report.files(record))})")
    return OK


def measure(device: torch.device, quick: bool, command: Sequence[str]) -> Record:
    """Time every operator on `device`; takes minutes, most of them compiling."""
    started, clock = datetime.now(UTC), time.perf_counter()
    torch.manual_seed(SEED)
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    s = QUICK_SEQUENCE if quick else fitting_sequence(device, dtype)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    timer = gpu_timer(device) if device.type == "cuda" else cpu_timer
    threads = torch.get_num_threads() if device.type == "cpu" else None
    common = {"device": report.device_name(device), "dtype": str(dtype).removeprefix("torch."), "threads": threads}

    copy = Copy.make(device)
    bandwidths: list[float] = []
    points: list[PointResult] = []
    for shape in shapes(s)[: 1 if quick else None]:
        for case in _cases(shape, device, dtype):
            report.progress(case.key)
            points += measure_case(case, timer, rounds, copy, bandwidths, common)
    return Record(
        kind="benchmark",
        id=ID,
        title="Fused operators: time, and share of the bandwidth of a copy",
        paper=PaperPlace("Section 5.8", "Section 4.2"),
        fidelity="measured",
        scale="paper" if s == PAPER_SEQUENCE else f"s={s}",
        state="complete",
        provenance=collect(command, SEED, started, time.perf_counter() - clock, packages=("triton",)),
        points=(_copy_point(bandwidths, common), *points),
        notes=(
            f"Samples of all implementations alternate; values are the fastest of {rounds} samples.",
            "reference: PyTorch operators, one kernel per step, with their own backward: the baseline.",
            "compiled: torch.compile; triton: custom kernels; sdpa: PyTorch's scaled_dot_product_attention.",
        ),
    )


def fitting_sequence(device: torch.device, dtype: torch.dtype) -> int:
    """The paper's sequence, halved until forty of the largest tensors fit; on a CPU, short enough to take seconds."""
    if device.type == "cpu":
        return CPU_SEQUENCE
    free, _ = torch.cuda.mem_get_info(device)
    s = PAPER_SEQUENCE
    while s > QUICK_SEQUENCE and 40 * largest_tensor(shapes(s)[1], dtype) > free:
        s //= 2
    return s


def measure_case(
    case: Case,
    timer: Timer,
    rounds: int,
    copy: Copy,
    bandwidths: list[float],
    common: Mapping[str, str | int | None],
) -> list[PointResult]:
    """One point per series: the fastest of `rounds` samples, which the series and the copy take in turns.

    What the copy reached is appended to `bandwidths`; shares refer to the copies made during this case.
    """
    failures = {name: ("skipped", call) for name, call in case.calls.items() if isinstance(call, str)}
    steps: dict[str, dict[str, Step]] = {"forward": {}, "backward": {}}
    for name, call in case.calls.items():
        if isinstance(call, str):
            continue
        forward, backward = _steps(call, case.inputs)
        try:
            for prepare, warm_up in (forward, backward) * 2:
                warm_up(prepare())
        except torch.OutOfMemoryError:
            failures[name] = ("oom", "the device has too little memory for this shape")
        else:
            steps["forward"][name], steps["backward"][name] = forward, backward
    times = {name: take_turns({**calls, COPY: copy.step}, timer, rounds) for name, calls in steps.items()}
    reached = [copy.bytes_moved / seconds for samples in times.values() for seconds in samples[COPY]]
    bandwidths += reached
    points = []
    for name in case.calls:
        parameters = {"operator": case.operator, "model": case.shape.model, "series": name, **case.parameters, **common}
        status, reason = failures.get(name, ("ok", None))
        points.append(
            PointResult(
                key=f"{case.key}/{name}",
                series=name,
                label=case.operator,
                parameters=parameters,
                status=status,
                reason=reason,
                fingerprint=fingerprint(parameters),
                metrics={} if reason else _metrics(case, name, times, max(reached)),
            )
        )
    return points


def take_turns(steps: Mapping[str, Step], timer: Timer, rounds: int) -> dict[str, list[float]]:
    """`rounds` samples of each, in rounds, so that what disturbs the machine disturbs all alike."""
    samples: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            samples[name].append(timer(step))
    return samples


def cpu_timer(step: Step) -> float:
    """Seconds of one step."""
    prepare, call = step
    prepared = prepare()
    start = time.perf_counter()
    call(prepared)
    return time.perf_counter() - start


def gpu_timer(device: torch.device) -> Timer:
    """A timer that gives the device's own time of one step, with cold caches and launches out of the way."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)

    def time_step(step: Step) -> float:
        prepare, call = step
        prepared = prepare()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(FLUSHES):
            flush.zero_()
        start.record()
        call(prepared)
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    return time_step


def _cases(shape: Shape, device: torch.device, dtype: torch.dtype) -> Iterable[Case]:
    yield from cases(shape, device, dtype)
    yield attention(shape, device, dtype)


def _steps(call: Call, inputs: tuple[Tensor, ...]) -> tuple[Step, Step]:
    """Forward, and backward after a forward of its own: some compiled backwards run once only."""

    def prepare() -> tuple[Tensor, Tensor]:
        output = call(*inputs)
        return output, torch.randn_like(output)

    def backward(prepared: tuple[Tensor, Tensor]) -> object:
        output, grad = prepared
        return torch.autograd.grad(output, inputs, grad)

    return (lambda: None, lambda _: call(*inputs)), (prepare, backward)


def _copy_point(samples: list[float], common: Mapping[str, str | int | None]) -> PointResult:
    metrics = {"bandwidth": Metric(max(samples), "B/s", "measured", tuple(samples))}
    return PointResult(COPY, COPY, COPY, common, "ok", None, fingerprint(common), metrics)


def _metrics(case: Case, name: str, times: dict[str, dict[str, list[float]]], bandwidth: float) -> dict[str, Metric]:
    metrics = {}
    baseline = next(iter(case.calls))  # the first series: the reference, or the older layout
    for step, samples in times.items():
        value = min(samples[name])
        metrics[f"{step}_time"] = Metric(value, "s", "measured", tuple(samples[name]))
        if baseline in samples:
            metrics[f"{step}_speedup"] = Metric(min(samples[baseline]) / value, "1", "derived")
        if moved := case.bytes_moved.get(step):
            metrics[f"{step}_bytes"] = Metric(moved, "B", "derived")
            metrics[f"{step}_share_of_copy"] = Metric(moved / value / bandwidth, "1", "derived")
    return metrics


if __name__ == "__main__":
    sys.exit(main())
