"""The files that are read, one row each: a valid example, and what reads it. A new format is a row more."""

import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ptdp_core.schedules import build
from ptdp_core.schedules.files import read_schedule
from ptdp_core.simulator.cluster import CLUSTER_FOLDER
from reproduce.annex.calibrate.measured_tables import fit_tables
from reproduce.annex.explain.profiled_step import profile_step
from reproduce.annex.explain.throughput_lines import read_lines
from reproduce.annex.papers import csv_table
from reproduce.annex.plot.own_points import read_points
from reproduce.cli import main
from reproduce.experiment import catalog, papers, told
from reproduce.planning.models import find
from results import ROOT, opening
from results.records import read_record
from tests.reproduce.annex.explain.made_traces import gpu_trace, written

CHECKPOINT = "saved/step_00000001"
POINT = {"layers": 8, "hidden": 256, "heads": 4, "seq": 128, "p": 2, "t": 2, "v": 1, "b": 1, "B": 8, "label": "mine"}
RUN = """[model]
layers = 2
hidden = 32
heads = 4
seq = 16
vocab = 256
[parallel]
p = 1
B = 4
schedule = "1f1b"
[optimizer]
lr = 0.01
[run]
steps = 1
save = "saved"
data = "my.tokens"
"""


@dataclass(frozen=True)
class Format:
    """A format: `make` writes a valid example into a folder, and returns the files of it that are mutated.

    `read` reads it, in that folder; it returns a command's exit code, or None where a reader was called, which may
    raise `ValueError`.
    """

    make: Callable[[Path], list[Path]]
    read: Callable[[], int | None]
    seal: Callable[[], None] = lambda: None  # makes checksums fit mutated files, as who means harm would


def _file(name: str, content: bytes) -> Callable[[Path], list[Path]]:
    """Makes an example of one file."""

    def make(folder: Path) -> list[Path]:
        (folder / name).write_bytes(content)
        return [folder / name]

    return make


def _cluster(name: str) -> Callable[[Path], list[Path]]:
    """Makes a cluster's file, and points to simulate on it."""

    def make(folder: Path) -> list[Path]:
        (folder / "points.json").write_text(json.dumps([POINT]))
        return _file("my.toml", (CLUSTER_FOLDER / f"{name}.toml").read_bytes())(folder)

    return make


def _read_cluster() -> int:
    return main(["simulate", "points.json", "--cluster", "my.toml"])


def _tokens(folder: Path) -> list[Path]:
    from ptdp_core.engine.data import HEADER, MAGIC

    return _file("my.tokens", HEADER.pack(MAGIC, 2, 256, 100) + struct.pack("<100H", *range(100)))(folder)


def _megatron(folder: Path) -> list[Path]:
    from ptdp_core.engine.data import MEGATRON_MAGIC

    head = MEGATRON_MAGIC + struct.pack("<QBQQ", 1, 8, 4, 5)
    index = head + struct.pack("<4i", *[25] * 4) + struct.pack("<4q", 0, 50, 100, 150) + struct.pack("<5q", *range(5))
    return _file("my.idx", index)(folder) + _file("my.bin", struct.pack("<100H", *range(100)))(folder)


def _read_tokens(name: str) -> None:
    from ptdp_core.engine.data import check_vocabulary, fingerprint, open_tokens

    tokens = open_tokens(name)
    fingerprint(tokens)
    check_vocabulary(tokens, 256)


def _checkpoint(folder: Path) -> list[Path]:
    """A checkpoint of one step: what says what is in it, and the tensors."""
    _tokens(folder)
    (folder / "run.toml").write_text(RUN)
    assert main(["train", "run.toml", "--json"]) == 0
    return sorted(path for path in (folder / CHECKPOINT).iterdir() if path.is_file())


def _seal_checkpoint() -> None:
    """Write a manifest that fits the files as they are."""
    from ptdp_core.engine.checkpoint import folder as folders
    from ptdp_core.engine.files import FileSum, checksum

    path = Path(CHECKPOINT)
    if folders.manifest(path) is not None:
        names = folders.manifest(path) or {}
        sums = {name: FileSum((path / name).stat().st_size, checksum(path / name)) for name in names}
        shutil.copytree(path, folders.partial_path(path))
        folders.complete(path, sums)


def _trace(folder: Path) -> list[Path]:
    """A profiled step of two GPUs."""
    return written(folder, *(gpu_trace(rank, ranges=bool(rank)) for rank in (0, 1)))


def _read_trace() -> None:
    profile_step([Path("of_0.json"), Path("of_1.json")])


def _read_own_points() -> None:
    record = read_record(ROOT / "results/reference/fig_interleaved/simulated/record.json")
    read_points(Path("mine.csv"), catalog.load("fig_interleaved").at("paper"), record)


SHAPES = [(m, n, k) for m in (512, 8192) for n in (1024, 4096) for k in (64, 8192)]
GEMMS = "m,n,k,us\n" + "".join(f"{m},{n},{k},{m * n * k / 2e8 + 5}\n" for m, n, k in SHAPES)
PASSES = ("1,1024,8,64,forward,90", "1,1024,8,64,backward,200", "1,4096,8,64,forward,900")
ATTENTION = "\n".join(("batch,seq,heads,head_size,pass,us", *PASSES))
NCCL = "#  Rank  0\n#  Rank  1\n" + "".join(
    f" {size} {size // 4} float sum -1 {20 + size / 3e5:.2f} {size / 3e4:.2f} {size / 3e4:.2f} 0\n"
    for size in (1 << 20, 1 << 22, 1 << 24, 1 << 26)
)
LOG = "step 1 | elapsed time per iteration (ms): 812.3 | throughput per GPU (TFLOP/s/GPU): 140.2\n" * 5
LLAMA = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "architectures": ["LlamaForCausalLM"],
}


def _read_table(*kinds: int) -> Callable[[], None]:
    """Reads it as a table of products, of attention or of collectives, and fits a cluster to it."""
    table = Path("table")
    return lambda: fit_tables("h100", *(table if kind else None for kind in kinds[:2]), [table] * kinds[2]) and None


def _paper(folder: Path) -> list[Path]:
    """A paper with a table of ten numbers and a claim about them, as `paper new` writes it."""
    assert main(["paper", "mine"]) == 0
    return sorted((folder / "papers" / "mine").iterdir())


def _read_paper() -> None:
    paper = papers.read(Path("papers/mine"))
    told.entries(paper)
    for name in paper.tables:
        told.claims_of(paper, name, csv_table.artifact(paper, name))


FORMATS = {
    "products": Format(_file("table", GEMMS.encode()), _read_table(1, 0, 0)),
    "attention": Format(_file("table", ATTENTION.encode()), _read_table(0, 1, 0)),
    "collectives": Format(_file("table", NCCL.encode()), _read_table(0, 0, 1)),
    "paper": Format(_paper, _read_paper),
    "config.json": Format(
        _file("config.json", json.dumps(LLAMA, indent=1).encode()), lambda: find("config.json") and None
    ),
    "log": Format(_file("log", LOG.encode()), lambda: read_lines(opening.read_text("log"), "log") and None),
    "points": Format(
        _file("points.json", json.dumps([POINT], indent=1).encode()),
        lambda: main(["simulate", "points.json", "--json"]),
    ),
    "run": Format(_file("run.toml", RUN.encode()), lambda: main(["train", "run.toml", "--print-sbatch"])),
    "cluster": Format(_cluster("selene"), _read_cluster),
    "cluster on a base": Format(_cluster("h100-4hca"), _read_cluster),
    "schedule as CSV": Format(
        _file("my.csv", build("interleaved", p=2, m=4, v=2).to_csv().encode()),
        lambda: read_schedule(Path("my.csv"), {}) and None,
    ),
    "schedule as text": Format(
        _file("my.txt", b"# mine\n0F0 0F1 0B0 0B1  # first rank\n1F0 1B0 1F1 1B1\n"),
        lambda: read_schedule(Path("my.txt"), {}) and None,
    ),
    "record": Format(
        _file("record.json", (ROOT / "results/reference/fig_bubble/derived/record.json").read_bytes()),
        lambda: read_record(Path("record.json")) and None,
    ),
    "trace": Format(_trace, _read_trace),
    "own points": Format(_file("mine.csv", b"series,x,value,low,high\na,12,1,0.5,2\nb,24,2,,\n"), _read_own_points),
    "tokens": Format(_tokens, lambda: _read_tokens("my.tokens")),
    "Megatron's tokens": Format(_megatron, lambda: _read_tokens("my.bin")),
    "checkpoint": Format(
        _checkpoint, lambda: main(["weights", "export", CHECKPOINT, "--out", "exported"]), _seal_checkpoint
    ),
}
