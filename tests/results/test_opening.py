"""What users name is opened in one way: regular files only, bounded, and inside of the folder where they belong."""

import gzip
import os
import re
import tracemalloc
import zlib

import pytest

from results import ROOT, opening

READERS = {
    "bytes": opening.read_bytes,
    "text": opening.read_text,
    "packed": opening.read_packed,
    "open": opening.open_regular,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_only_regular_files_are_opened_and_at_once(read, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name, why in (("pipe", "no regular file"), ("endless", "no regular file"), ("", "Is a directory")):
        with pytest.raises(OSError, match=why):
            read(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "nothing")


def test_a_small_file_takes_little_memory(tmp_path):
    """A read sets as much aside as it is asked for, and memory that was set aside stays with a browser's Python."""
    (tmp_path / "small").write_bytes(b"x")
    tracemalloc.start()
    opening.read_bytes(tmp_path / "small")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < opening.MIB < opening.TEXT


def test_a_file_has_at_most_as_many_bytes_as_asked_for(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * opening.MIB)
    assert len(opening.read_bytes(path, opening.MIB)) == opening.MIB
    path.write_bytes(b"x" * (opening.MIB + 1))
    with pytest.raises(OSError, match="has more than 1 MiB"):
        opening.read_bytes(path, opening.MIB)
    assert len(opening.read_bytes(path, None)) == opening.MIB + 1


def test_a_file_is_inside_of_its_folder(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "in.csv").write_text("in")
    (tmp_path / "out.csv").write_text("out")
    (folder / "link.csv").symlink_to(tmp_path / "out.csv")
    assert opening.read_text(folder / "in.csv", within=folder) == "in"
    for name in ("../out.csv", "link.csv", tmp_path / "out.csv"):
        with pytest.raises(OSError, match="lies outside of"):
            opening.read_text(folder / name, within=folder)


def test_lines_end_in_newlines_however_they_were_written(tmp_path):
    (tmp_path / "text").write_bytes(b"a\r\nb\rc\nd")
    assert opening.read_text(tmp_path / "text") == (tmp_path / "text").read_text(encoding="utf-8") == "a\nb\nc\nd"


def test_packed_files_are_unpacked_part_by_part(tmp_path):
    path, content = tmp_path / "file.gz", os.urandom(1000) * 300
    path.write_bytes(gzip.compress(content[:1000]) + gzip.compress(content[1000:]) + b"\0\0")
    assert opening.read_packed(path) == content
    path.write_bytes(content)
    assert opening.read_packed(path) == content
    path.write_bytes(gzip.compress(content)[:-20])
    with pytest.raises(zlib.error):
        opening.read_packed(path)


def test_a_small_packed_file_does_not_become_a_large_one(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"{}," * 30_000_000))
    assert path.stat().st_size < 100_000
    with pytest.raises(OSError, match="has more than 16 MiB"):
        opening.read_packed(path)


# Files that are read otherwise: this project's own, those that a command has just made, and the system's.
OTHERWISE = {
    "ptdp_core/launch": ("local.py", "srun.py"),
    "ptdp_core/simulator": ("programs.py",),
    "reproduce/annex": (
        "accuracy/ledger.py",
        "accuracy/open_rows.py",
        "accuracy/refit.py",
        "accuracy/sealed.py",
        "emulation/fabric.py",
        "bench/gpu_archive.py",
        "bench/gpu_session.py",
        "bench/simulator_rate.py",
        "papers/zerobubble/table_5.py",
    ),
    "reproduce/annex/exact": (
        "entries.py",
        "mutations.py",
        "page.py",
        "probes.py",
        "reference.py",
        "simulated.py",
        "usage.py",
    ),
    "reproduce/annex/gate": ("command_gate.py", "counts.py", "project.py", "run.py", "trees.py"),
    "reproduce/annex/page": (
        "answers.py",
        "bridge.py",
        "browser_timing.py",
        "build.py",
        "home.py",
        "lessons.py",
        "words.py",
    ),
    "reproduce/annex/report": ("contents.py", "report_page.py"),
    "reproduce/commands": ("options.py",),
    "reproduce/experiment": ("margins.py",),
    "reproduce/output": ("export.py",),
    "reproduce/planning": ("hub.py",),
    "reproduce/annex/weights": ("earlier_checkpoints.py",),  # files of a manifest, whose sums have been compared
    "results": ("opening.py",),
    "results/records": ("provenance.py", "storage.py", "validation.py"),
}
READS = re.compile(
    r"\.read_text\(|\.read_bytes\(|(?<![\w.])open\((?!.*\"[wax]b?\")|\.open\((\"rb\"|newline|encoding)|gzip\.\w"
)

OWN_TABLE = 'Path(__file__).with_suffix(".toml")'  # what stands beside a module is this project's


def test_nothing_else_opens_what_users_name():
    found = {
        path.relative_to(ROOT).as_posix()
        for package in ("results", "ptdp_core", "reproduce")
        for path in (ROOT / package).rglob("*.py")
        if any(
            READS.search(line) and "opening." not in line and OWN_TABLE not in line
            for line in path.read_text(encoding="utf-8").splitlines()
        )
    }
    assert found <= {f"{folder}/{name}" for folder, names in OTHERWISE.items() for name in names}
