"""Files that somebody else means harm with: each is refused in one line, at once, in bounded memory."""

import csv
import gzip
import json
import os
import re
import signal
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from reproduce.annex.page.serve import served
from reproduce.cli import main
from reproduce.experiment import papers
from results import ROOT
from results.records import read_record
from results.records.errors import INTERNAL, INVALID_RESULTS, USAGE
from results.visible import visible

POINT = {"layers": 8, "hidden": 256, "heads": 4, "seq": 128, "b": 1, "B": 8}
RECORD = ROOT / "results/reference/fig_bubble/derived/record.json"
PAPER = """title = "T"
authors = ["A"]
year = 2024
short = "S"
citation = "C"
[tables.table_1]
title = "T"
values = {values}
parameters = ["n"]
[tables.table_1.metrics.time]
label = "time"
unit = "s"
"""
# What reads the file X, and its exit code if that cannot be read.
READERS = {
    "points": (["simulate", "X"], USAGE),
    "cluster": (["simulate", "points.json", "--cluster", "X.toml"], USAGE),
    "explained point": (["explain", "X", "--seconds", "1"], USAGE),
    "log": (["explain", "points.json", "--log", "X"], USAGE),
    "trace": (["explain", "trace", "X"], USAGE),
    "model": (["plan", "--model", "X.json", "--gpus", "8", "--batch", "8"], USAGE),
    "products": (["calibrate", "--out", "my.toml", "--gemm", "X"], USAGE),
    "attention": (["calibrate", "--out", "my.toml", "--attention", "X"], USAGE),
    "collectives": (["calibrate", "--out", "my.toml", "--collectives", "X"], USAGE),
    "own points": (["plot", "fig_interleaved", "--points", "X", "--results", "R"], USAGE),
    "schedule": (["schedule", "X.csv"], USAGE),
    "run": (["train", "X.toml", "--print-sbatch"], USAGE),
    "records": (["compare", "X", "X"], INVALID_RESULTS),
    "table of a new paper": (["paper", "mine", "X"], USAGE),
}
HARMS = ("pipe", "endless", "folder", "too large")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder of one's own, and an end for what would never end."""

    def ended(*_):
        raise TimeoutError("it hangs")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "points.json").write_text(json.dumps([POINT]))
    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(60)
    yield tmp_path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def harmful(path, harm):
    """Put something that is no file to read at a place."""
    if harm == "pipe":
        os.mkfifo(path)
    elif harm == "endless":
        path.symlink_to("/dev/zero")
    elif harm == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_to_read_is_refused(reader, harm, folder, refused):
    words, code = READERS[reader]
    if "R" in words:
        words = [str(ROOT / "results/reference") if word == "R" else word for word in words]
    if reader == "records" and harm == "folder":
        pytest.skip("a folder of records is what compare reads")
    harmful(folder / next(word for word in words if word.startswith("X")), harm)
    line = refused(*words, code=code)
    assert re.search(r"no regular file|s a directory|has more than \d+ MiB", line), line


@pytest.fixture
def own(folder):
    """The empty folder of a paper of one's own."""
    own = folder / "papers" / "mine"
    own.mkdir(parents=True)
    papers._read_all.cache_clear()
    return own


@pytest.mark.parametrize("values", ["/dev/zero", "pipe", "link.csv", "../outside.csv", "/etc/hostname"])
def test_a_papers_values_are_a_file_of_its_folder(values, own, refused):
    (own.parent / "outside.csv").write_text("n,time\n1,2\n")
    (own / "link.csv").symlink_to(own.parent / "outside.csv")
    os.mkfifo(own / "pipe")
    (own / "paper.toml").write_text(PAPER.format(values=json.dumps(values)))
    line = refused("mine/table_1")
    assert "lies outside of" in line or "is no regular file" in line


@pytest.mark.parametrize("harm", ["pipe", "endless"])
def test_a_papers_own_files_are_regular(harm, own, refused):
    harmful(own / "paper.toml", harm)
    assert "paper.toml" in refused("list")


def test_a_small_trace_does_not_become_a_large_one(folder, refused):
    (folder / "trace.json.gz").write_bytes(gzip.compress(b'{"traceEvents": [' + b"{}," * 30_000_000 + b"{}]}"))
    assert "has more than 16 MiB" in refused("explain", "trace", "trace.json.gz")


def test_lists_within_lists_have_an_end(folder, refused):
    (folder / "points.json").write_text("[" * 100_000)
    assert "cannot be read as JSON" in refused("simulate", "points.json")


def nccl(rows, time=""):
    """What nccl-tests prints of so many sizes."""
    lines = [f"#  Rank  {rank}" for rank in range(8)]
    for i in range(rows):
        size = 1024 * (i + 1)
        us = time or f"{20 + size / 300e3:.4f}"
        lines.append(
            f" {size} {size // 4} float sum -1 {us} {size / 20e3:.2f} {1.75 * size / 20e3:.2f} 0 {us} 1.0 1.0 0"
        )
    return "\n".join(lines)


@pytest.mark.parametrize("time", ["1" + 400 * "0", "1e400", "0.0001", "0"])
def test_a_collectives_time_out_of_range(time, folder, refused):
    (folder / "n.txt").write_text(nccl(5, time))
    assert "0 lines" in refused("calibrate", "--out", "my.toml", "--collectives", "n.txt")


def test_many_sizes_of_a_collective_take_no_longer_than_they_should(folder):
    """Lines are tried once for all rows, through at most 128 of them: the work grows as the rows."""
    from reproduce.annex.calibrate import lines

    rows = [lines.FitPoint(1, 1000.0 * (i + 1), 1e-5 + 1e-8 * (i + 1)) for i in range(2000)]
    assert len(lines._tried(rows)) <= 128 * 129 / 2
    (folder / "n.txt").write_text(nccl(2000))
    assert main(["calibrate", "--out", "my.toml", "--base", "h100", "--collectives", "n.txt"]) == 0


@pytest.mark.parametrize(
    "words", [["plan", "--model"], ["simulate"], ["explain"], ["explain", "trace"], ["schedule"], ["verify"]]
)
def test_a_name_of_three_hundred_letters(words, refused):
    further = ["--gpus", "8", "--batch", "8"] if "plan" in words else ["--seconds", "1"] if words == ["explain"] else []
    refused(*words, 300 * "a", *further)


@pytest.mark.parametrize("harm", ["1" + 400 * "0", "-1" + 400 * "0"])
def test_a_record_with_a_number_out_of_range(harm, folder, refused):
    text = RECORD.read_text()
    changed = re.sub(r'("value": )[-\d.e]+', lambda found: found[1] + harm, text, count=1)
    assert changed != text
    (folder / "record.json").write_text(changed)
    assert "finite number" in refused("compare", str(RECORD), "record.json", code=INVALID_RESULTS)


def spoiled(folder, harm):
    """A results folder with a record whose texts hold something."""
    source = ROOT / "results/reference/fig_interleaved/simulated/record.json"
    record = json.loads(source.read_text())
    for point in record["points"]:
        for name in ("key", "label", "series"):
            point[name] = harm + point[name]
        point["parameters"]["schedule"] = harm
    record["provenance"]["cluster"]["name"] = harm
    place = folder / "results" / "fig_interleaved" / "simulated" / "record.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(record))
    return folder / "results"


@pytest.mark.parametrize("harm", ["\x1b[2J", "\x07", "\0", "\x9b2J", "\u202e"])
def test_control_characters_are_spelled_out(harm, folder, capsys):
    results = str(spoiled(folder, harm))
    reference = str(ROOT / "results/reference/fig_interleaved/simulated")
    for words in (
        ["compare", results, reference],
        ["verify", "fig_interleaved", "--results", results],
        ["plot", "fig_interleaved", "--results", results, "--formats", "svg", "png"],
        ["report", "--results", results, "--out", "report.html"],
    ):
        code = main(words)
        written = capsys.readouterr()
        assert code != INTERNAL, written.err
        assert harm[0] not in written.out + written.err
    assert harm[0] not in (folder / "report.html").read_text()


def test_labels_and_names_reach_the_terminal_spelled_out(folder, capsys):
    (folder / "labelled.json").write_text(json.dumps([POINT | {"label": "\x1b]0;owned\x07"}]))
    assert main(["simulate", "labelled.json"]) == 0
    assert main(["simulate", "\x1b[2J.json"]) == USAGE
    written = capsys.readouterr()
    assert not re.search("[\x07\x1b]", written.out + written.err)
    assert "\\x1b[2J.json" in written.err


@pytest.mark.parametrize("cell", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1"])
def test_no_cell_of_a_csv_file_is_a_formula(cell):
    from reproduce.output.tables import csv_text

    record = read_record(ROOT / "results/reference/fig_interleaved/simulated/record.json")
    point = replace(record.points[0], label=cell, parameters={**record.points[0].parameters, cell: -1})
    text = csv_text(replace(record, points=(point,)))
    rows = list(csv.reader(text.splitlines()))
    assert {value for row in rows for value in row if value.endswith(cell.strip())} == {f"'{visible(cell)}"}
    assert "-1" in rows[1]  # a number stays one


def test_the_page_serves_no_file_with_a_zero_in_its_name(folder, capfd):
    with served(folder) as where:
        for name in ("%00", "a%00b", 5000 * "a"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"{where}{name}", timeout=20)
    assert capfd.readouterr().err == ""
