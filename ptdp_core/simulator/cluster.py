"""Clusters: every number of the hardware model, read from one data file per cluster (`clusters/*.toml`).

A number carries its unit, its plausible range, its source and the data it was set with; nothing about hardware is a
literal in code. `Cluster` holds the values alone, for the cost models; `read_parameters` gives the full entries. A file
with a `base` may give the value of a number alone, and has the rest from there. The numbers between nodes may come from
a network file (`networks/*.toml`), which a cluster file names as its `network`, or 'h100+efa-3200' after a plus.
"""

import os
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache, lru_cache
from math import inf
from pathlib import Path
from typing import Any

from ptdp_core.simulator.programs import load_program
from ptdp_core.simulator.software import PAPER, Software, software_of
from results import opening

CLUSTER_FOLDER = Path(__file__).parent / "clusters"
NETWORK_FOLDER = Path(__file__).parent / "networks"
BASE, NETWORK, TILES, SOFTWARE, PROGRAM = "base", "network", "gemm_tiles", "software", "program"
PAPERS = "paper-2021"  # the program of a cluster that names none
HOST = "host"  # what a calibrated file names its machine by, so that runs of other machines are not held against it
# What a cluster file has beside its numbers.
NO_NUMBERS = ("name", "description", BASE, NETWORK, HOST, TILES, SOFTWARE, PROGRAM)
# What a network file may have, beside its name and description.
OF_NETWORKS = (
    *("gpus_per_hca", "gpus_per_switch", "hca_bandwidth", "p2p_bandwidth", "tensor_hca_bandwidth"),
    *("allreduce_hca_bandwidth", "network_latency", "tree_hop_latency", "zero3_bandwidth"),
)
COLUMNS = ("value", "unit", "range", "source", "set_with")  # of the table of a number


@dataclass(frozen=True)
class ClusterParameter:
    """A number of a cluster file: value and unit, plausible range (low, high), source, and what it was set with."""

    name: str
    value: float
    unit: str
    low: float
    high: float
    source: str
    set_with: str


@dataclass(frozen=True, eq=False)
class Cluster:
    """The values of one cluster file. Compared by identity: `load_cluster` returns one object per file."""

    name: str
    peak_flops: float
    memory_bytes: float
    memory_reserved: float
    allocator_efficiency: float
    gpus_per_node: int
    gpus_per_hca: int
    gpus_per_switch: int
    multiprocessors: int
    memory_bandwidth: float
    gemm_plateau: float
    gemm_wave_efficiency: float
    gemm_tile_intensity: float
    gemm_write_efficiency: float
    gemm_memory_efficiency: float
    gemm_unaligned: float
    memory_efficiency: float
    stream_efficiency: float
    nvlink_latency_2: float
    nvlink_latency_4: float
    nvlink_latency_8: float
    nvlink_bandwidth_2: float
    nvlink_bandwidth_4: float
    nvlink_bandwidth_8: float
    nvlink_p2p_bandwidth: float
    hca_bandwidth: float
    p2p_bandwidth: float
    tensor_hca_bandwidth: float
    allreduce_hca_bandwidth: float
    network_latency: float
    tree_hop_latency: float
    zero3_bandwidth: float
    zero3_interference: float
    microbatch_host_time: float
    iteration_host_time: float
    element_bytes: int
    gradient_bytes: int
    optimizer_bytes: float
    # Rows and columns of the result that one thread block of the GEMM library computes.
    gemm_tiles: tuple[tuple[int, int], ...]
    # What a file may leave out: the time between dependent kernels, and the host's time for a call and an exchange.
    kernel_gap: float = 0.0
    host_per_call: float = 0.0
    exchange_host_time: float = 0.0
    # What a GPU waits for each product of a local expert, and for a cast of all local experts' rows: the host launches
    # and prepares them one by one, once it has read how many tokens there are.
    expert_launch_time: float = 0.0
    expert_cast_time: float = 0.0
    # Multiprocessors that exchanges of experts have while another microbatch computes on the others, and the share of
    # an exchange that hides at most.
    exchange_multiprocessors: float = 0.0
    exchange_hidden: float = 1.0
    # The standard deviation of the speed of GPUs of one name at products and attention, over their mean.
    gpu_spread: float = 0.0
    # The speed of a state-space layer's scan and convolution over that of its products and bytes.
    scan_efficiency: float = 1.0
    # The bytes of a row of the inner dimension with which large products reach half of `gemm_plateau`, as kernels begin
    # and end each tile apart from the next.
    gemm_half_depth: float = 0.0
    # The peak of products of FP8, and the share of it that large ones sustain (`gemm_plateau`); those of FP4. 0: a GPU
    # without them.
    fp8_peak_flops: float = 0.0
    fp8_gemm_plateau: float = 0.0
    fp4_peak_flops: float = 0.0
    fp4_gemm_plateau: float = 0.0
    # Fused attention with a causal mask: the share of the peak that the fastest kernel reaches on long sequences and
    # heads of 128, the sequence at which it has half of that, and likewise the head and the queries of all heads; and
    # what earlier kernels reach of it. 0: as if its products were GEMMs, with what the mask hides.
    attention_forward: float = 0.0
    attention_backward: float = 0.0
    attention_half_length: float = 0.0
    attention_half_head: float = 0.0
    attention_half_rows_forward: float = 0.0
    attention_half_rows_backward: float = 0.0
    flash_attention_1: float = 1.0
    flash_attention_2: float = 1.0
    # Watts of a GPU with its share of the node, computing and waiting, and what the building takes for each watt: only
    # the energy of a run depends on them. 0: not known.
    busy_power: float = 0.0
    idle_power: float = 0.0
    power_usage_effectiveness: float = 1.0
    # Bytes a second between a GPU and its host's memory, each way, while all GPUs of a node copy; 0: not known.
    host_bandwidth: float = 0.0
    # What the training program that runs there does beyond the paper's, and its name; '' where the file has switches.
    software: Software = PAPER
    program: str = ""
    named: bool = False  # whether the program was asked for, and is not the file's
    usable_memory: float = field(init=False)  # that a training run can fill: none where all of it is reserved

    def __post_init__(self) -> None:
        vars(self)["usable_memory"] = max(0.0, self.memory_bytes - self.memory_reserved)

    def in_nodes_of(self, size: int) -> "Cluster":
        """The same GPUs and links in nodes of `size` as emulated ones are: an HCA for each GPU, and only rings."""
        return replace(self, gpus_per_node=size, gpus_per_hca=1, gpus_per_switch=1, tree_hop_latency=inf)


NUMBERS = {each.name: each for each in fields(Cluster) if each.init and each.name not in NO_NUMBERS}


def cluster_path(name: str) -> Path:
    """The data file of a cluster: a name known here ('selene', in any case), or the path of a .toml file.

    A network after it does not matter. Raises ValueError for a name that is neither.
    """
    return _file("cluster", _split(name)[0], CLUSTER_FOLDER, "selene")


def network_path(name: str) -> Path:
    """The data file of a network, likewise."""
    return _file(NETWORK, name, NETWORK_FOLDER, "roce-400")


def _split(name: str) -> tuple[str, str]:
    """The cluster of a name, and the network behind a plus, '' without one. A file may have a plus in its name."""
    cluster, plus, network = name.rpartition("+")
    return (cluster, network) if plus and not (name.endswith(".toml") and os.path.exists(name)) else (name, "")


def _file(what: str, name: str, folder: Path, usual: str) -> Path:
    known = folder / f"{name.lower()}.toml"
    if "/" not in name and os.path.isfile(known):
        return known
    if name.endswith(".toml") and os.path.exists(name):
        return Path(name)
    names = sorted(path.stem for path in folder.glob("*.toml"))
    wrong = "is not there: no such file" if name.endswith(".toml") or "/" in name else "is unknown"
    longer = sorted((each for each in names if each.startswith(name.lower())), key=lambda each: (-len(each), each))
    near = longer[-1:] or get_close_matches(name.lower(), names, n=1) or [usual]
    raise ValueError(
        f"{what}={name!r} {wrong}; needs one of {', '.join(names)}, or the path of a .toml file; try {near[0]}"
    )


def cluster_label(name: str) -> str:
    """What records call a cluster: the name of its file, and of the network's behind a plus, if there is one."""
    network = _split(name)[1]
    return cluster_path(name).stem + (f"+{network_path(network).stem}" if network else "")


def cluster_files(name: str) -> list[Path]:
    """The file of a cluster, those of its bases and of networks: all that its numbers come from."""
    first = cluster_path(name)
    return [first, *(path for path, _ in _with_bases(name) if path != first)]


def read_parameters(name: str) -> dict[str, ClusterParameter]:
    """All numbers of a cluster file, by name. Raises ValueError naming one that is unknown, missing or impossible.

    A number that the file does not have is taken from the cluster that it names as its `base`, if it names one. Numbers
    that have a default in `Cluster` may be missing. A value alone that is out of its base's range is warned of.
    """
    files = _with_bases(name)
    parameters: dict[str, ClusterParameter] = {}
    for path, data in reversed(files):
        for key, entry in data.items():
            if key in NUMBERS:
                parameters[key] = _parameter(path, key, entry, parameters.get(key))
            elif key not in NO_NUMBERS:
                near = get_close_matches(key, [*NUMBERS, *NO_NUMBERS], n=1)
                fix = f"; try {near[0]}" if near else ", such as peak_flops"
                raise ValueError(f"cluster file {path}: {key} is unknown; needs names of selene's numbers{fix}")
    needed = [number for number, item in NUMBERS.items() if item.default is MISSING]
    if missing := [number for number in needed if number not in parameters]:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if missing[3:] else "")
        raise ValueError(
            f"cluster file {files[-1][0]} lacks {shown}; needs all numbers of selene, or a base that has them; "
            'try base = "selene"'
        )
    return parameters


def _with_bases(name: str) -> list[tuple[Path, dict[str, Any]]]:
    """The file of a cluster and those of its bases, with their entries, what counts most first.

    A network counts more than the base of the file that names it, and one behind a plus more than all. Raises
    ValueError for a base or a network that is none.
    """
    files: list[tuple[Path, dict[str, Any]]] = []
    name, network = _split(name)
    if network:
        files.append(_network(network, "--network"))
    while True:
        path = cluster_path(name)
        if any(path == earlier for earlier, _ in files):
            raise ValueError(f'cluster file {path} is its own {BASE}; needs another cluster; try {BASE} = "selene"')
        data = _read(path)
        files.append((path, data))
        if NETWORK in data:
            files.append(_network(data[NETWORK], f"cluster file {path}"))
        if BASE not in data:
            return files
        name = data[BASE]
        if not isinstance(name, str):
            raise ValueError(f'cluster file {path}: {BASE}={name!r} is no name; needs text; try {BASE} = "selene"')


def _network(name: Any, where: str) -> tuple[Path, dict[str, Any]]:
    """A network's file and its numbers. Raises ValueError for an entry that is no number between nodes."""
    if not isinstance(name, str):
        raise ValueError(f'{where}: {NETWORK}={name!r} is no name; needs text; try {NETWORK} = "roce-400"')
    path = network_path(name)
    data = _read(path)
    if unknown := [key for key in data if key not in (*OF_NETWORKS, "name", "description")]:
        raise ValueError(
            f"network file {path}: {unknown[0]} is no number between nodes; needs {', '.join(OF_NETWORKS)}"
        )
    return path, {key: value for key, value in data.items() if key in OF_NETWORKS}


def _read(path: Path) -> dict[str, Any]:
    try:
        return _parsed(opening.read_text(path, opening.TOML))
    except OSError as error:
        raise ValueError(f"cluster file {path} cannot be read: {error.strerror}; needs name = number lines") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"cluster file {path} is not valid TOML: {reason}; needs name = number lines") from None


@lru_cache(maxsize=16)
def _parsed(text: str) -> dict[str, Any]:
    """The entries of a cluster file, parsed once: its text is asked for several times, and parsing it takes long."""
    return tomllib.loads(text)


def read_tiles(name: str) -> tuple[tuple[int, int], ...]:
    """The GEMM tiles of a cluster file, rows and columns. Raises ValueError if it and its bases give none."""
    files = _with_bases(name)
    path, tiles = next(((path, data[TILES]) for path, data in files if TILES in data), (files[0][0], None))

    def is_tile(tile: Any) -> bool:
        return isinstance(tile, list) and len(tile) == 2 and all(isinstance(size, int) and size > 0 for size in tile)

    if not isinstance(tiles, list) or not tiles or not all(map(is_tile, tiles)):
        raise ValueError(f"cluster file {path}: {TILES}={tiles!r}; needs pairs of positive sizes; try [[128, 128]]")
    return tuple((rows, columns) for rows, columns in tiles)


def read_program(name: str) -> tuple[Software, str]:
    """The training program of a cluster file, or else of its base: what its `software` switches on, or its `program`.

    Raises ValueError for an unknown switch or program.
    """
    for path, data in _with_bases(name):
        try:
            if SOFTWARE in data:
                return software_of(data[SOFTWARE]), ""
            if PROGRAM in data:
                return load_program(data[PROGRAM]).software, data[PROGRAM]
        except ValueError as error:
            raise ValueError(f"cluster file {path}: {error}") from None
    return PAPER, PAPERS


def _parameter(path: Path, name: str, entry: Any, base: ClusterParameter | None) -> ClusterParameter:
    """A number of a file: a table with all about it, or the value alone, in place of the one that the base has."""
    if not isinstance(entry, Mapping):
        return _replaced(path, name, entry, base)
    where = f"cluster file {path}, [{name}]"
    if missing := [column for column in COLUMNS if column not in entry]:
        raise ValueError(
            f"{where} lacks {', '.join(missing)}; needs value, unit, range = [low, high], source and set_with; "
            f"try {name} = {entry.get('value', '...')}, the value alone, in a file with a base"
        )
    if unknown := [key for key in entry if key not in COLUMNS]:
        raise ValueError(f"{where}: {unknown[0]} is unknown; needs {', '.join(COLUMNS)}; try without it")
    if not isinstance(entry["range"], list) or len(entry["range"]) != 2:
        raise ValueError(f"{where}: range={entry['range']!r} is no range; needs [low, high]")
    low, high = (float(_positive(where, "range", end)) for end in entry["range"])
    value = _of_kind(where, name, _positive(where, "value", entry["value"]))
    if not low <= value <= high:
        raise ValueError(f"{where}: value={value} lies outside its range [{low}, {high}]; needs low <= value <= high")
    return ClusterParameter(name, value, str(entry["unit"]), low, high, str(entry["source"]), str(entry["set_with"]))


def _replaced(path: Path, name: str, entry: Any, base: ClusterParameter | None) -> ClusterParameter:
    """The base's number with the value that a file gives alone; a warning says that it lies outside the range."""
    where = f"cluster file {path}"
    value = _of_kind(where, name, _positive(where, name, entry))
    if base is None:
        raise ValueError(
            f'{where}: {name}={value} stands alone; needs a base that has its unit and range; try base = "selene"'
        )
    if not base.low <= value <= base.high:
        outside = f"{where}: {name}={value:g} lies outside its plausible range, {base.low:g} to {base.high:g}"
        unit = "" if base.unit in ("1", "count") else f" {base.unit}"
        warnings.warn(f"{outside}{unit}; it is taken as it is", stacklevel=2)
    source = f"{path.name}, in place of {base.value:g} ({base.source})"
    return replace(base, value=value, source=source, set_with="nothing")


def _positive(where: str, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf:
        raise ValueError(f"{where}: {key}={value!r} is no positive number; needs a number above 0")
    return value


def _of_kind(where: str, name: str, value: float) -> float:
    """The value of a number, as a whole one if it counts something."""
    if NUMBERS[name].type is not int:
        return value
    if value != int(value):
        raise ValueError(f"{where}: {name}={value} is no whole number; needs one; try {max(1, round(value))}")
    return int(value)


@cache
def load_cluster(name: str = "selene") -> Cluster:
    """The cluster of that name or file. Raises ValueError as `read_parameters` does."""
    if cluster_path(name).stem == name.lower() != name:
        return load_cluster(name.lower())
    values = {key: parameter.value for key, parameter in read_parameters(name).items()}
    software, program = read_program(name)
    others: dict[str, Any] = {TILES: read_tiles(name), SOFTWARE: software, PROGRAM: program}
    return Cluster(name=name, **others, **values)  # type: ignore[arg-type]


@cache
def with_program(cluster: Cluster, name: str) -> Cluster:
    """The cluster with another training program on it, one object for each of both; its switches, and its host's time.

    Raises ConfigurationError for a program that is none.
    """
    program = load_program(name)
    narrower = cluster.software.fp32_gradients and not program.software.fp32_gradients
    numbers = {"gradient_bytes": cluster.element_bytes if narrower else cluster.gradient_bytes, **program.numbers}
    return replace(
        cluster,
        software=program.software,
        program=program.name,
        named=True,
        **numbers,  # type: ignore[arg-type]
    )
