"""Clusters: every number of the hardware model, read from one data file per cluster (`clusters/*.toml`).

A number carries its unit, its plausible range, its source and the data it was set with; nothing about hardware is a
literal in code. `Cluster` holds the values alone, for the cost models; `read_parameters` gives the full entries.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from difflib import get_close_matches
from functools import cache, lru_cache
from math import inf
from pathlib import Path
from typing import Any

from ptdp_core.simulator.software import PAPER, Software, software_of

CLUSTER_FOLDER = Path(__file__).parent / "clusters"
BASE, TILES, SOFTWARE = "base", "gemm_tiles", "software"  # entries of a cluster file that are no numbers
NO_NUMBERS = ("name", TILES, SOFTWARE)


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
    # What the training program that runs there does beyond the paper's.
    software: Software = PAPER

    @property
    def usable_memory(self) -> float:
        """The bytes of a GPU's memory that a training run can fill."""
        return self.memory_bytes - self.memory_reserved

    def in_nodes_of(self, size: int) -> "Cluster":
        """The same GPUs and links in nodes of `size` as emulated ones are: an HCA for each GPU, and only rings."""
        return replace(self, gpus_per_node=size, gpus_per_hca=1, gpus_per_switch=1, tree_hop_latency=inf)


def cluster_path(name: str) -> Path:
    """The data file of a cluster: a name known here ('selene'), or the path of a .toml file.

    Raises ValueError for a name that is neither.
    """
    known = CLUSTER_FOLDER / f"{name}.toml"
    if "/" not in name and known.is_file():
        return known
    if name.endswith(".toml") and Path(name).is_file():
        return Path(name)
    names = sorted(path.stem for path in CLUSTER_FOLDER.glob("*.toml"))
    what = "is not there: no such file" if name.endswith(".toml") or "/" in name else "is unknown"
    near = get_close_matches(name, names, n=1) or ["selene"]
    raise ValueError(
        f"cluster={name!r} {what}; needs one of {', '.join(names)}, or the path of a .toml file; try {near[0]}"
    )


def cluster_files(name: str) -> list[Path]:
    """The file of a cluster and those of its bases: all that its numbers come from."""
    return [path for path, _ in _with_bases(name)]


def read_parameters(name: str) -> dict[str, ClusterParameter]:
    """All entries of a cluster file, by name. Raises ValueError naming an entry that is missing or out of range.

    An entry that the file does not have is taken from the cluster that it names as its `base`, if it names one. Numbers
    that have a default in `Cluster` may be missing.
    """
    known = {field.name: field.default is MISSING for field in fields(Cluster) if field.name not in NO_NUMBERS}
    needed = {name for name, required in known.items() if required}
    parameters: dict[str, ClusterParameter] = {}
    for path, data in reversed(_with_bases(name)):
        parameters |= {key: _parameter(path, key, entry) for key, entry in data.items() if isinstance(entry, Mapping)}
        missing, unknown = sorted(needed - parameters.keys()), sorted(parameters.keys() - known.keys())
        if missing or unknown:
            raise ValueError(
                f"cluster file {path} lacks {missing or 'nothing'} and has unknown {unknown or 'nothing'}; "
                "needs exactly the numbers of clusters/selene.toml"
            )
    return parameters


def _with_bases(name: str) -> list[tuple[Path, dict[str, Any]]]:
    """The file of a cluster, that of its base, of the base's base and so on, with their entries."""
    files: list[tuple[Path, dict[str, Any]]] = []
    base: Any = name
    while base is not None:
        path = cluster_path(base)
        if path in (earlier for earlier, _ in files):
            raise ValueError(f"cluster file {path}: {BASE}={base!r} is a base of itself; needs another file, or none")
        files.append((path, _read(path)))
        base = files[-1][1].get(BASE)
        if not isinstance(base, str | None):
            raise ValueError(f"cluster file {path}: {BASE}={base!r} is no name; needs a cluster or a .toml file")
    return files


def _read(path: Path) -> dict[str, Any]:
    try:
        return _parsed(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"cluster file {path} is not valid TOML: {reason}; needs one table per number") from None


@lru_cache(maxsize=16)
def _parsed(text: str) -> dict[str, Any]:
    """The entries of a cluster file, parsed once: its text is asked for several times, and parsing it takes long."""
    return tomllib.loads(text)


def read_tiles(name: str) -> tuple[tuple[int, int], ...]:
    """The GEMM tiles of a cluster file, rows and columns. Raises ValueError if it and its bases give none."""
    path, tiles = next(((path, data[TILES]) for path, data in _with_bases(name) if TILES in data), (name, None))
    if not isinstance(tiles, list) or not tiles or not all(map(_is_tile, tiles)):
        raise ValueError(f"cluster file {path}: {TILES}={tiles!r}; needs pairs of positive sizes; try [[128, 128]]")
    return tuple((rows, columns) for rows, columns in tiles)


def _is_tile(tile: object) -> bool:
    """Whether this is a pair of positive whole numbers."""
    return isinstance(tile, list) and len(tile) == 2 and all(type(side) is int and side > 0 for side in tile)


def read_software(name: str) -> Software:
    """The training program of a cluster file: the switches that its `software` names, else its base's.

    Raises ValueError for an unknown switch.
    """
    for path, data in _with_bases(name):
        if SOFTWARE in data:
            try:
                return software_of(data[SOFTWARE])
            except ValueError as error:
                raise ValueError(f"cluster file {path}: {error}") from None
    return PAPER


def _parameter(path: Path, name: str, entry: Mapping[str, Any]) -> ClusterParameter:
    try:
        low, high = entry["range"]
        value = entry["value"]
        number = int(value) if isinstance(value, int) else float(value)
        parameter = ClusterParameter(
            name,
            number,
            str(entry["unit"]),
            float(low),
            float(high),
            str(entry["source"]),
            str(entry["set_with"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"cluster file {path}, [{name}]: {error!r}; needs value, unit, range = [low, high], source and set_with"
        ) from None
    if not 0 < parameter.low <= parameter.value <= parameter.high < inf:
        raise ValueError(
            f"cluster file {path}, [{name}]: value={parameter.value} lies outside its range "
            f"[{parameter.low}, {parameter.high}]; needs finite 0 < low <= value <= high"
        )
    return parameter


@cache
def load_cluster(name: str = "selene") -> Cluster:
    """The cluster of that name or file. Raises ValueError as `read_parameters` does."""
    values = {key: parameter.value for key, parameter in read_parameters(name).items()}
    others: dict[str, Any] = {TILES: read_tiles(name), SOFTWARE: read_software(name)}
    return Cluster(name=name, **others, **values)  # type: ignore[arg-type]
