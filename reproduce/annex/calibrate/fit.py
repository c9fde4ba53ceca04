"""Every number of a cluster file from timings, with its range and source; what one node cannot show is the base's.

GEMMs are fitted in `gemm_fit.py`, the rest are lines through timings (`lines.py`). Nothing is fitted to the time of a
training step.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from math import expm1
from statistics import median

from ptdp_core.simulator import Cluster, ClusterParameter, load_cluster, read_parameters
from reproduce.annex.calibrate.gemm_fit import fit_gemms, gemm_error
from reproduce.annex.calibrate.lines import FitPoint, Fitted, line, line_error
from reproduce.annex.calibrate.timings import DeviceTimings, Timings
from results.records.errors import UnavailableError

MEASURED, MECHANISM = "measured", "mechanism"
GRADIENT_BYTES = 4  # the engine sums and reduces gradients in fp32, whatever the model's precision
GROUPS = (2, 4, 8)
UNITS = {"kernel_gap": "s", "host_per_call": "s", "exchange_host_time": "s"}  # of numbers that a base need not have

# By a number's name: its value, which may have a range, its source, and what it was set with (`MEASURED` if nothing).
Numbers = dict[str, tuple[Fitted | float, str] | tuple[Fitted | float, str, str]]


@dataclass(frozen=True)
class Calibration:
    """The numbers, in a cluster file's order, and how far the model with them is from the timings they come from.

    `gemm_tiles` are the base's. `errors`: mean relative error by kind of timing.
    """

    parameters: Mapping[str, ClusterParameter]
    gemm_tiles: tuple[tuple[int, int], ...]
    errors: Mapping[str, float]

    @property
    def measured(self) -> int:
        """How many of the numbers are this machine's."""
        return sum(parameter.set_with == MEASURED for parameter in self.parameters.values())


def fit(timings: Timings, base: str = "selene") -> Calibration:
    """The cluster that `timings` show; `base` gives what they cannot."""
    known, cluster = read_parameters(base), load_cluster(base)
    if not timings.on_gpu:
        known.pop("host_per_call", None)  # on a CPU the host is the device: kernel_gap has it, and this never limits
    numbers: Numbers = {name: _as_base(parameter, base) for name, parameter in known.items()}
    device = _device(timings, known["peak_flops"], base)
    values = {name: as_parameter(name, known, *number).value for name, number in device.items()}
    kernels, errors = _kernels(timings, replace(cluster, **values, kernel_gap=timings.busy.call))  # type: ignore[arg-type]
    links, link_errors = _links(timings)
    numbers |= device | kernels | links | _host(timings) | _zero3(timings, known["zero3_bandwidth"].value)
    parameters = {
        field.name: as_parameter(field.name, known, *numbers[field.name])
        for field in fields(Cluster)
        if field.name in numbers
    }
    return Calibration(parameters, cluster.gemm_tiles, errors | link_errors)


def _as_base(parameter: ClusterParameter, base: str) -> tuple[Fitted, str, str]:
    shipped = Fitted(parameter.value, parameter.low, parameter.high)
    return shipped, f"not measured; as on {base}: {parameter.source}", base


def as_parameter(
    name: str, known: Mapping[str, ClusterParameter], value: Fitted | float, source: str, set_with: str = MEASURED
) -> ClusterParameter:
    """The number with four digits, as a file shows it; the range still contains the value."""
    unit = UNITS.get(name) or known[name].unit
    whole = unit == "count" or name in ("element_bytes", "gradient_bytes")
    number = value if isinstance(value, Fitted) else (value, value, value)
    rounded, low, high = (round(x) if whole else float(f"{x:.4g}") for x in number)
    return ClusterParameter(name, rounded, unit, min(low, rounded), max(high, rounded), source, set_with)


def _how(timings: Timings) -> str:
    """How devices were measured, for sources."""
    if timings.on_gpu or timings.ranks == 1:
        return "on one device"
    return f"on each of {timings.ranks} ranks at once, one thread each"


def _device(timings: Timings, peak: ClusterParameter, base: str) -> Numbers:
    """What the device is: its peak, memory, bandwidth, and the precision it was measured in.

    A GPU whose fastest product is at least half of the base's peak has this `peak`: that of a data sheet, of which
    products reach a share. With the fastest product in its place that share would be 1, whatever the GPU does.
    """
    busy, on_gpu = timings.busy, timings.on_gpu
    how = _how(timings) + ("; the range reaches to one rank alone" if timings.alone is not None else "")
    largest = max(busy.copies)
    numbers: Numbers = {
        "peak_flops": (
            _with_alone(timings, _fastest),
            f"fastest of {len(busy.gemms)} GEMMs of transformer layers in {timings.dtype}, {how}",
        ),
        "memory_bytes": (busy.memory, "as the driver says" if on_gpu else "the machine's, over its ranks"),
        "gpus_per_node": (timings.ranks, "devices found" if on_gpu else "ranks, one per core"),
        "multiprocessors": (busy.multiprocessors, "as the driver says" if on_gpu else "a rank has one core"),
        "memory_bandwidth": (
            _with_alone(timings, lambda device: 2 * largest / device.copies[largest]),
            f"copy of {largest / 2**20:.0f} MiB, read and written, {how}",
        ),
        "element_bytes": (timings.element_bytes, f"{timings.dtype}, the precision measured", MECHANISM),
        "gradient_bytes": (GRADIENT_BYTES, "the engine sums and reduces gradients in fp32", MECHANISM),
    }
    if on_gpu and 0.5 * peak.value <= _fastest(busy) <= peak.value:
        numbers["peak_flops"] = _as_base(peak, base)
    if not on_gpu:
        numbers["memory_reserved"] = busy.reserved, "resident in a rank's process before any tensor"
    return numbers


def _fastest(device: DeviceTimings) -> float:
    return max(2.0 * M * N * K * batch / seconds for (M, N, K, batch), seconds in device.gemms.items())


def _with_alone(timings: Timings, number: Callable[[DeviceTimings], float]) -> Fitted:
    """The number while all devices are busy; the range reaches to that of one alone."""
    values = [number(device) for device in (timings.busy, timings.alone) if device is not None]
    return Fitted(values[0], min(values), max(values))


def _kernels(timings: Timings, cluster: Cluster) -> tuple[Numbers, dict[str, float]]:
    """How GEMMs, memory-bound kernels and the optimizer use the device, and the errors.

    `cluster` has the device's own numbers; its others are the base's.
    """
    busy, how = timings.busy, _how(timings)
    fitted = fit_gemms(busy.gemms, cluster, out_of_cache=not timings.on_gpu)
    products = f"{len(busy.gemms)} products of transformer layers {how}"
    source = f"fitted, with the other GEMM numbers, to {products}; the range: what fits about as well"
    numbers: Numbers = {name: (number, source) for name, number in fitted.items()}
    rows, bandwidth = operator_rows(timings), cluster.memory_bandwidth
    gap, rate = line(rows)
    errors = {
        "GEMMs": expm1(gemm_error(busy.gemms, cluster, {name: number.value for name, number in fitted.items()})),
        "other operators": expm1(line_error(rows, gap.value, rate.value)),
    }
    counted = "the engine's operators of transformer layers besides GEMMs, with autograd, in the bytes that they move"
    efficiency = Fitted(*(x / bandwidth for x in rate))
    if timings.on_gpu and efficiency.value > 1:
        raise UnavailableError(
            f"memory_efficiency={efficiency.value:.3f} of the operators' bytes over the copy's rate; needs at most 1; "
            "try again on a GPU that does nothing else"
        )
    caches = "" if timings.on_gpu else "; above 1 where caches serve"
    numbers["memory_efficiency"] = efficiency, f"share of memory_bandwidth of {counted}, {how}{caches}"
    if timings.on_gpu:
        chain = "from one small kernel to the next in a chain of them, launches queued ahead"
        numbers["kernel_gap"] = busy.call, chain
        host = "host time of the engine's tiny layer, forward and backward, over the simulator's count of its calls"
        numbers["host_per_call"] = busy.launch, host
    else:
        numbers["kernel_gap"] = gap, f"per operator, whatever its size: {counted}, {how}"
        numbers["gemm_unaligned"] = 1.0, "a CPU's BLAS takes rows of any length", MECHANISM
    parameters = _optimizer_line(timings)[1]
    numbers["optimizer_bytes"] = (
        Fitted(bandwidth / parameters.value, bandwidth / parameters.high, bandwidth / parameters.low),
        "time of the engine's gradient clearing, norm, clipping and AdamW for each further parameter, in bytes at "
        "memory_bandwidth",
    )
    numbers["stream_efficiency"] = 1.0, "memory_bandwidth is that of a copy", MECHANISM
    return numbers, errors


def operator_rows(timings: Timings) -> list[FitPoint]:
    """Kernels, bytes and seconds of each layer's operators without GEMMs, forward and backward together."""
    rows = []
    for size, seconds in timings.busy.operators.items():
        count, elements = size.moved
        rows.append(FitPoint(count, timings.element_bytes * elements, seconds))
    return rows


def _optimizer_line(timings: Timings) -> tuple[Fitted, Fitted]:
    """Fixed time of an optimizer step, and parameters per second."""
    return line([FitPoint(1, parameters, seconds) for parameters, seconds in timings.busy.optimizer.items()])


def _links(timings: Timings) -> tuple[Numbers, dict[str, float]]:
    """What collectives and messages inside the node cost, and the errors."""
    link = "inside this node" if timings.on_gpu else "over this machine's loopback"
    numbers: Numbers = {}
    errors, wrong = {}, []
    for k in GROUPS:
        measured = k if k in timings.all_reduce else max((j for j in timings.all_reduce if j < k), default=None)
        if measured is None:
            continue
        by_size = timings.all_reduce[measured]
        rows = [FitPoint(1, 2 * (measured - 1) / measured * size, seconds) for size, seconds in by_size.items()]
        latency, bandwidth = line(rows)
        wrong.append(line_error(rows, latency.value, bandwidth.value))
        what = f"all-reduce over {measured} ranks {link}, {_sizes(by_size)}"
        note = "" if k == measured else f"; not measured over {k}: there are {timings.ranks}"
        numbers[f"nvlink_latency_{k}"] = latency, f"{what}: what does not depend on the size{note}"
        rate = f"{what}: bus bandwidth, 2(k-1)/k of the size over the rest{note}"
        numbers[f"nvlink_bandwidth_{k}"] = bandwidth, rate
    if wrong:
        errors["all-reduces"] = expm1(sum(wrong) / len(wrong))
    if timings.messages:
        rows = [FitPoint(1, size, seconds) for (_, size), seconds in timings.messages.items()]
        host, bandwidth = line(rows)
        errors["messages"] = expm1(line_error(rows, host.value, bandwidth.value))
        what = f"the engine's blocking exchange of one message or two between two ranks {link}"
        numbers["exchange_host_time"] = host, f"{what}: what does not depend on the size"
        sizes = _sizes(size for _, size in timings.messages)
        numbers["nvlink_p2p_bandwidth"] = bandwidth, f"{what}: the size over the rest, {sizes}"
    return numbers, errors


def _sizes(sizes: Iterable[int]) -> str:
    every = sorted(set(sizes))
    return f"{every[0] / 1024:.0f} KiB to {every[-1] / 2**20:.0f} MiB"


def _host(timings: Timings) -> Numbers:
    """What the host does for each microbatch, and once an iteration."""
    times = timings.busy.fetch.values()
    fixed, _ = _optimizer_line(timings)
    small = min(timings.all_reduce[2].items())[1] if timings.all_reduce else 0.0
    return {
        "microbatch_host_time": (
            Fitted(median(times), min(times), max(times)),
            "one microbatch drawn from a token file by the engine, which does so on the first and on the last stage "
            "only",
        ),
        "iteration_host_time": (
            Fitted(fixed.value + 2 * small, fixed.low, fixed.high + 4 * small),
            f"the engine's optimizer step without what depends on the parameters, {1e3 * fixed.value:.2g} ms"
            + (", and two small all-reduces (loss, norm); from none to four, by layout" if small else ""),
        ),
    }


def _zero3(timings: Timings, between: float) -> Numbers:
    """ZeRO-3's gathers go through the node's links and the network (`between` nodes, B/s): the slower of the two."""
    if not timings.all_gather:
        return {}
    ranks = max(timings.all_gather)
    size, seconds = max(timings.all_gather[ranks].items())
    inside = (ranks - 1) / ranks * size / seconds
    what = f"all-gather of {size / 2**20:.0f} MiB over {ranks} ranks of this node, which is slower than the network"
    return {"zero3_bandwidth": (Fitted(inside, inside / 2, inside * 2), what)} if inside < between else {}
