"""Traces of Nsight Systems: the same events as in torch.profiler's traces have the same phases."""

import sqlite3
from contextlib import closing

import pytest

from reproduce.annex.explain import nsys
from reproduce.annex.explain.profiled_step import profile_step
from results.records.errors import UsageError
from tests.reproduce.annex.explain.made_traces import gpu_trace, written

TABLES = """
CREATE TABLE StringIds (id INTEGER, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, correlationId INT, globalPid INT, demangledName INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, globalTid INT, text TEXT, textId INT);
"""


def exported(path, *traces):
    """A file as nsys exports it, of a process for each trace of torch.profiler."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(TABLES)
        names = {}
        for number, trace in enumerate(traces, 1):
            process = (0x1234 << 40) + number * nsys.THREADS
            for event in trace["traceEvents"]:
                if event["ph"] != "X":
                    continue
                start, end = (round(1000 * time) for time in (event["ts"], event["ts"] + event["dur"]))
                thread, correlation = process + event["tid"], event.get("args", {}).get("correlation")
                name = names.setdefault(event["name"], len(names))
                if event["cat"] == "kernel":
                    row = (start, end, correlation, process, name)
                    database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?)", row)
                elif event["cat"] == "cuda_runtime":
                    row = (start, end, thread, correlation, name)
                    database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", row)
                else:
                    sequence = event.get("args", {}).get("Sequence number")
                    text = event["name"] + (f", seq = {sequence}" if sequence is not None else "")
                    row = (start, end, 59, thread, text, None)
                    database.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", row)
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", ((number, name) for name, number in names.items()))
    return path


def unlinked(rank, ranges, autograd=True):
    """A made trace without what nsys has not: links to backward passes, and the rank."""
    events = [event for event in gpu_trace(rank, ranges)["traceEvents"] if event["ph"] == "X"]
    return {"traceEvents": [event for event in events if autograd or "autograd" not in event["name"]]}


@pytest.mark.parametrize("ranges", [True, False])
def test_the_same_events_have_the_same_phases(ranges, tmp_path):
    traces = [unlinked(rank, ranges) for rank in (0, 1)]
    theirs, ours = profile_step([exported(tmp_path / "both.sqlite", *traces)]), profile_step(written(tmp_path, *traces))
    assert (theirs.step, theirs.ranks, theirs.world) == (7, 2, 2)
    assert theirs.phases == pytest.approx(ours.phases, abs=1e-9)
    assert [len(row) for row in theirs.timeline.rows] == [4, 4]


def test_without_autograd_s_ranges_its_thread_tells_and_that_is_said(tmp_path):
    named, bare = ([unlinked(rank, False, autograd) for rank in (0, 1)] for autograd in (True, False))
    expected = profile_step([exported(tmp_path / "named.sqlite", *named)])
    profile = profile_step([exported(tmp_path / "bare.sqlite", *bare)])
    assert profile.phases == pytest.approx(expected.phases, abs=1e-9)
    assert nsys.NO_AUTOGRAD in profile.notes
    assert nsys.NO_AUTOGRAD not in expected.notes


def test_a_file_of_one_process_is_of_the_rank_in_its_name(tmp_path, as_json):
    paths = [exported(tmp_path / f"run_rank{rank}.sqlite", unlinked(rank, True)) for rank in (1, 0)]
    found = as_json("explain", "trace", *paths, "--results", tmp_path)
    assert found["ranks"] == 2
    assert found["measured"]["phases"]["backward"] == pytest.approx(0.04)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("", "no kernels; needs nsys profile"),
        ("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT)", "is no trace: no such column"),
        (f"{TABLES}; INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('x', 1, 1, 1, 1)", "is no trace: unsupported"),
    ],
)
def test_a_database_that_is_no_trace_is_one_line(script, message, tmp_path):
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(f"CREATE TABLE other (x INT); {script}")
    with pytest.raises(UsageError, match=message) as caught:
        profile_step([path])
    assert "\n" not in str(caught.value)
    path.write_bytes(nsys.HEADER + b"x" * 100)
    with pytest.raises(UsageError, match="is no trace: "):
        profile_step([path])
