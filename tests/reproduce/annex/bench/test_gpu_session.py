"""The steps of `reproduce bench gpu`: their order, limits, time and archive; and all of them at toy sizes (slow)."""

import io
import json
import sys
import time
import zipfile
from argparse import Namespace
from dataclasses import replace

import pytest

from benchmarks.harness.device_setup import Setup
from ptdp_core.config import ModelConfig, ParallelConfig
from reproduce.annex.bench import command_bench as bench
from reproduce.annex.bench import gpu_archive, gpu_session, gpu_step
from reproduce.annex.bench.benchmark_run import find
from reproduce.annex.bench.gpu_cases import CASES, GPUS_CASES, PEERS
from reproduce.annex.bench.gpu_session import SAVING_S, SessionStep
from reproduce.annex.bench.gpu_step import unsupported
from reproduce.commands import COMMANDS
from reproduce.experiment import catalog
from results import ROOT
from results.records import Metric, read_record, write_record
from results.records.errors import DONE, INVALID_RESULTS, UsageError
from tests.points import made

ONCE = "import sys, pathlib; p = pathlib.Path(sys.argv[1]); p.write_text(p.read_text() + 'x' if p.exists() else 'x')"


def python(name, text, *words, seconds=60.0, needs=()):
    return SessionStep(name, f"the {name} step", (sys.executable, "-c", text, *words), seconds, needs)


def test_steps_run_in_order_and_what_has_passed_is_not_run_again(tmp_path):
    mark, told = tmp_path / "mark", []
    cured = tmp_path / "cured"
    fails = f"import pathlib, sys; sys.exit(0 if pathlib.Path({str(cured)!r}).exists() else 'no such thing')"
    steps = [
        python("good", ONCE, str(mark)),
        python("bad", fails),
        python("slow", "import time; time.sleep(60)", seconds=0.5),
        SessionStep("lacking", "a step that cannot be", ("a-program-that-is-nowhere",)),
        python("unable", "import sys; print('bf16 on a GPU of 7.5'); sys.exit(3)"),
        python("bare", "", needs=("a_wheel_that_is_nowhere",)),
        python("listing", r"print('measured: works\n  ok torch\n           its build')"),
    ]
    outcomes = gpu_session.run(steps, tmp_path / "session", told.append)
    statuses = ["passed", "failed", "too long", "skipped", "skipped", "skipped", "passed"]
    assert [row.status for row in outcomes.values()] == statuses
    assert outcomes["unable"].said == "bf16 on a GPU of 7.5"
    assert outcomes["bare"].said == "needs a_wheel_that_is_nowhere"
    assert outcomes["bad"].said == "no such thing"
    assert outcomes["listing"].said == "measured: works"
    assert outcomes["lacking"].said == "needs a-program-that-is-nowhere"
    assert "no such thing" in (tmp_path / "session" / "bad.log").read_text()
    cured.touch()
    again = gpu_session.run(steps[:2], tmp_path / "session", told.append)
    assert [row.status for row in again.values()] == ["passed", "passed"]
    assert mark.read_text() == "x"
    assert told[-3] == "good: passed before"
    kept = json.loads((tmp_path / "session" / "session.json").read_text())
    assert set(kept["steps"]) == {step.name for step in steps}
    (tmp_path / "session" / "session.json").write_text(json.dumps(kept | {"sources": "another commit's"}))
    gpu_session.run(steps[:1], tmp_path / "session", told.append)
    assert told[-3].startswith("what ran here before had other sources")
    assert mark.read_text() == "xx"


def test_it_stops_in_time_and_goes_on_with_what_was_not_tried(tmp_path):
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    steps = [
        python("bad", "raise SystemExit('wrong')", seconds=1),
        python("endless", child, seconds=1.5),
        python("long", "", seconds=1000),
        python("short", "", seconds=0),
    ]
    start, told = time.monotonic(), []
    first = gpu_session.run(steps, tmp_path, told.append, seconds=SAVING_S + 2.5)
    assert time.monotonic() - start < 60  # of 600
    assert (first["long"].status, first["endless"].status) == ("no time", "no time")
    told.clear()
    again = gpu_session.run([replace(step, expected_s=1000) for step in steps], tmp_path, told.append, seconds=10)
    tried = [line.split()[1] for line in told if line.startswith("[")]
    assert tried == []
    gpu_session.run([steps[0], replace(steps[2], expected_s=60)], tmp_path, told.append)
    assert [line.split()[1] for line in told if line.startswith("[")] == ["long:", "bad:"]
    assert again["bad"].status == "failed"  # what was seen is kept where there was no time to see it again


def test_a_step_behind_one_that_has_not_passed_is_skipped_and_tried_again(tmp_path):
    """With ten minutes there is no time to train; the trace of that training is then no failure."""
    steps = [python("train", "", seconds=1000), python("trace", "")]
    first = gpu_session.run(steps, tmp_path, [].append, seconds=SAVING_S + 60)
    assert [row.status for row in first.values()] == ["no time", "skipped"]
    assert first["trace"].said == "needs what the step train leaves"
    again = gpu_session.run(steps, tmp_path, [].append)
    assert [row.status for row in again.values()] == ["passed", "passed"]


def test_every_step_of_a_real_session_is_on_the_gpu(tmp_path):
    for step in gpu_session.steps(tmp_path, toy=False)[1:]:
        words = " ".join(step.command)
        if step.name == "trace":
            continue
        assert any(sign in words for sign in ("cuda", "-m gpu", "--scale gpu", "compute-sanitizer")), words
        # Without it torchrun leaves a folder for its ranks' output among the temporary files.
        assert "torch.distributed.run" not in words or f"--log-dir {tmp_path}/{step.name}/" in words


def parsed(results, **options):
    return Namespace(
        **{"results": results, "toy": True, "step": None, "list": False, "quiet": True, "json": False}
        | {"table": "gpu", "needs": False, "archive": None, "seal": False, "minutes": None}
        | options
    )


def test_a_step_that_is_none(tmp_path):
    with pytest.raises(UsageError, match=r"unknown step 'peeks'; did you mean 'peaks'\?; there are doctor, toys"):
        bench.run_session(parsed(tmp_path, step=["peeks"]))


def test_the_plan_of_a_session(tmp_path, capsys):
    assert bench.run_session(parsed(tmp_path, toy=False, list=True)) == DONE
    assert capsys.readouterr().out.count("--device cuda") >= 4


def test_the_order_is_that_of_worth(tmp_path):
    names = [step.name for step in gpu_session.steps(tmp_path, toy=False)]
    worth = ["doctor", "tests", "gpt-sdpa", "gpt-sdpa/plain-compiled", "gpt-fp8", "gpt-fp8/bf16", "small"]
    worth += ["small/plain-compiled", "gpt-wide", "small-b8", "operators", "table_fused_operators"]
    places = [names.index(name) for name in (*worth, "calibrate", "trace")]
    assert places == sorted(places)
    assert len(set(names)) == len(names)


def test_all_peers_have_their_turn_within_ten_minutes(tmp_path):
    """Each ratio that the engine is held to is of pairs of steps in turns, in one run."""
    steps = gpu_session.steps(tmp_path, toy=False)
    names = [step.name for step in steps]
    last = max(names.index(name) for name in PEERS)
    assert sum(step.expected_s for step in steps[: last + 1]) <= 600 - SAVING_S
    compared = {(case, kind) for case, kind, _ in PEERS.values()}
    assert {("gpt-sdpa", "plain"), ("llama-4k", "llama"), ("small", "plain"), ("moe", "mixtral")} < compared
    assert ("gpt-fp8", "bf16") in compared


@pytest.mark.parametrize("table", gpu_session.TABLES)
def test_every_step_calls_what_there_is(table, tmp_path):
    known = {*COMMANDS, *catalog.ids()}
    for step in gpu_session.steps(tmp_path, toy=False, table=table):
        words = list(step.command)
        if words[1:3] == ["-m", "reproduce"]:
            assert words[3] in known, step
            if words[3] == "bench":
                for name in words[words.index("--device") + 2 :]:
                    assert name.startswith("--") or find(name)


def test_the_first_runs_cases_are_the_same_and_all_are_predicted():
    run = json.loads((ROOT / "results/reference/gpu/first_run.json").read_text(encoding="utf-8"))["cases"]
    for case in CASES[: len(run)]:
        model = ModelConfig(**run[case.name]["model"], trained_with_dropout=case.model.trained_with_dropout)
        assert (case.model, case.layout) == (model, ParallelConfig(**run[case.name]["parallel"]))
    sealed = read_record(gpu_archive.SEALED)
    assert [point.key for point in sealed.points] == [case.name for case in (*CASES, *GPUS_CASES)]
    assert all(point.status == "ok" for point in sealed.points)
    assert len(CASES) - len(run) == 12
    assert max(case.layout.n for case in GPUS_CASES) == 8


@pytest.mark.parametrize(
    ("capability", "dtype", "fp8", "line"),
    [((7, 5), "bf16", False, "no bf16"), ((7, 5), "fp16", False, None), ((8, 0), "bf16", True, "no FP8"),
     ((8, 9), "bf16", True, None)],
)  # fmt: skip
def test_what_a_gpu_has_not(capability, dtype, fp8, line):
    why = unsupported(capability, dtype, fp8)
    assert why is None if line is None else line in str(why)


def session(folder, seconds):
    """The archive of a session whose steps left a record of these cases."""
    kept = {name: {"status": "passed", "seconds": 9.0, "said": ""} for name in seconds}
    folder.mkdir()
    (folder / "session.json").write_text(json.dumps({"sources": gpu_session.sources(), "steps": kept}))
    for name, value in seconds.items():
        point = made(f"engine/{name}", {"time": Metric(value, "s", "measured", (value,))}, series="engine", label=name)
        record = replace(read_record(gpu_archive.SEALED), points=(point,), fidelity="measured")
        write_record(record, folder / name / "benchmarks" / "gpu_step" / "record.json")
    gpu_archive.write(folder, folder.with_suffix(".zip"))
    return folder.with_suffix(".zip")


@pytest.fixture
def files(tmp_path):
    """What the archive of a session with one case holds, by name."""
    with zipfile.ZipFile(session(tmp_path / "gpu", {"small": 1.0})) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_an_archive_becomes_records_and_scores(tmp_path, said):
    predicted = {p.key: float(p.metrics["time"].value or 0) for p in read_record(gpu_archive.SEALED).points}
    archive = session(tmp_path / "gpu", {"small": predicted["small"] / 1.1, "gpt-b1": predicted["gpt-b1"] / 0.7})
    with zipfile.ZipFile(archive) as held:
        assert len(held.namelist()) <= 8
    printed = said("bench", "gpu", "--import", archive, "--results", tmp_path / "there")
    assert "+10%" in printed
    assert "-30%" in printed
    assert "mean error of 2 predictions of seconds: 20.0%" in printed
    assert "note:" not in printed
    record = read_record(tmp_path / "there" / "benchmarks" / "gpu_step" / "record.json")
    assert {point.label for point in record.points} == {"small", "gpt-b1"}


def test_a_peers_time_over_ours_is_printed_with_the_spread_of_its_pairs():
    def point(key, samples):
        ratio = Metric(1.25, "1", "measured" if samples else "derived", samples)
        metrics = {"time": Metric(0.9, "s", "measured", (0.9,)), "ratio": ratio}
        return made(key, metrics, series="small", label=key.partition("/")[2])

    sealed = read_record(gpu_archive.SEALED)
    points = (point("small/plain-compiled", (1.0, 1.25, 1.25, 1.5, 1.75)), point("small/alone", None))
    rows = gpu_archive.scores(replace(sealed, points=points, fidelity="measured"), sealed)
    assert [row["peer_quartiles"] for row in rows] == [(1.25, 1.5), None]
    _, paired, alone, *_ = gpu_archive.score_lines(rows)
    assert paired.endswith("1.25  1.25 to 1.50")
    assert alone.endswith("1.25  not in pairs")
    assert max(map(len, gpu_archive.score_lines(rows))) <= 80


@pytest.mark.parametrize("name", ["gpt-fp8/bf16", "moe/hf"])
def test_a_peer_takes_turns_with_the_engine(name):
    if name == "moe/hf":
        pytest.importorskip("transformers")
    (point,) = gpu_step.points(Setup("cpu", quick=True, samples=3, only=(name,)))
    assert point.status == "ok", point.reason
    pairs = [
        theirs / ours
        for ours, theirs in zip(point.metrics["engine_time"].samples, point.metrics["time"].samples, strict=True)
    ]
    assert list(point.metrics["ratio"].samples) == pairs
    assert len(pairs) == 3


def test_a_toys_time_is_not_scored(files, tmp_path):
    toy = [record | {"scale": "quick"} for record in json.loads(files["records.json"])]
    (tmp_path / "toy.zip").write_bytes(packed(files | {"records.json": json.dumps(toy).encode()}))
    imported = gpu_archive.read(tmp_path / "toy.zip", tmp_path)
    assert imported.scores == []
    assert list(imported.records) == [tmp_path / "quick" / "benchmarks" / "gpu_step" / "record.json"]


def packed(files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return data.getvalue()


def harmed(files, harm):
    """The archive of these files, but for one harm."""
    record = json.loads(files["records.json"])[0]
    changes = {
        "a path": {"../../evil": b"x"},
        "a bomb": {"logs.txt": bytes(1 << 27)},
        "nested": {"session.json": b"[" * 100_000},
        "no steps": {"session.json": b"{}"},
        "odd seconds": {"session.json": b'{"steps": {"a": {"status": "passed", "seconds": "x", "said": ""}}}'},
        "an id that is a path": {"records.json": json.dumps([record | {"id": "../../evil"}]).encode()},
        "no record": {"records.json": b"[{}]"},
        "records that are none": {"records.json": b"7"},
    }
    data = packed(files | changes.get(harm, {}))
    if harm == "cut off":
        return data[: len(data) // 2]
    if harm == "a smaller size than it has":
        at = data.index(b"PK\x01\x02")
        return data[: at + 24] + b"\x01\0\0\0" + data[at + 28 :]
    return b"no archive" if harm == "no archive" else data


@pytest.mark.parametrize(
    "harm",
    ["a path", "a bomb", "nested", "no steps", "odd seconds", "an id that is a path", "no record",
     "records that are none", "cut off", "a smaller size than it has", "no archive"],
)  # fmt: skip
def test_a_hostile_archive_is_refused_in_a_line(harm, files, tmp_path, refused):
    (tmp_path / "bad.zip").write_bytes(harmed(files, harm))
    refused("bench", "gpu", "--import", tmp_path / "bad.zip", "--results", tmp_path / "there", code=INVALID_RESULTS)
    assert not (tmp_path / "there").exists()


def test_an_archive_of_another_commit_says_so(files, tmp_path, said):
    files["session.json"] = json.dumps(json.loads(files["session.json"]) | {"sources": "others"}).encode()
    (tmp_path / "other.zip").write_bytes(packed(files))
    printed = said("bench", "gpu", "--import", tmp_path / "other.zip", "--results", tmp_path / "there")
    assert "note: of other sources than these: of commit " in printed


@pytest.mark.slow
def test_the_whole_session_runs_on_a_cpu_at_toy_sizes(tmp_path):
    assert bench.run_session(parsed(tmp_path)) == DONE, (tmp_path / "gpu-toy" / "session.json").read_text()
    assert (tmp_path / "gpu-toy.zip").stat().st_size < gpu_archive.MOST


@pytest.mark.slow
@pytest.mark.parametrize("step", ["tensor-2", "pipeline-2", "data-2", "ring-2", "experts-2", "grid-4"])
def test_several_ranks_agree_with_one(step, tmp_path):
    assert bench.run_session(parsed(tmp_path, step=[step], table="gpus")) == DONE
    outcomes, _ = gpu_session.outcomes_of(tmp_path / "gpus-toy")
    assert outcomes[step].status == "passed", outcomes
