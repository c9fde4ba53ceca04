"""The command line: every exit code, one line per error, JSON alone on stdout, quick listing, our own packages."""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from reproduce.cli import main
from reproduce.commands import COMMANDS, IN_ANNEX, PARTS, run
from reproduce.experiment import catalog
from reproduce.experiment.artifact import IN_THE_PAPER
from reproduce.output import export
from reproduce.running import simulated
from results import ROOT
from results.records import Record, errors

SCRIPT = Path(sys.executable).with_name("reproduce")


def lines(text):
    return text.strip().splitlines()


def error_of(capsys):
    """The one line on stderr, apart from progress."""
    errors = [line for line in lines(capsys.readouterr().err) if line.startswith("reproduce: ")]
    assert len(errors) == 1
    return errors[0]


def test_list(said):
    text = said("list")
    assert [line.split()[0] for line in lines(text)[1 : 1 + len(catalog.ids())]] == list(catalog.ids())
    assert "Figure 12" in text


def test_commands_do_not_get_more():
    """A new one joins one that is there, or replaces it: `docs/adding.md` says where the next ones belong."""
    no_commands = {"__init__", "options", "run"}
    modules = {path.stem for path in (ROOT / "reproduce" / "commands").glob("*.py")} - no_commands
    annexed = (ROOT / "reproduce" / "annex").glob("*/command_*.py")
    homes = {name.replace(" ", "_"): home for name, home in IN_ANNEX.items()}
    assert {path.stem.removeprefix("command_"): path.parent.name for path in annexed} == homes
    assert modules | homes.keys() == {name.replace(" ", "_") for name in COMMANDS}
    assert len(COMMANDS) - len(PARTS) <= 20
    assert all(name.split()[0] in COMMANDS for name in PARTS)
    removing = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8").partition("## Removing")[2]
    rows = re.findall(r"^\| `(\w+)` \|.*\| `([a-z ]+)`", removing, re.MULTILINE)
    assert rows
    for later, today in rows:
        assert later not in COMMANDS
        assert today in COMMANDS


def test_list_as_json(as_json):
    artifacts = {entry["id"]: entry for entry in as_json("list")["artifacts"]}
    assert list(artifacts) == list(catalog.ids())
    assert artifacts["fig_interleaved"]["points"] == {"paper": 10, "laptop": 8, "cpu": 6, "gpus": 6}
    assert artifacts["fig_bubble"]["fidelities"] == ["derived"]


@pytest.mark.parametrize("id", catalog.ids())
def test_describe(said, id, as_json):
    text, brief = said("describe", id, "--full"), said("describe", id)
    artifact = catalog.load(id)
    ids = {claim.id.removesuffix(IN_THE_PAPER) for claim in artifact.claims}
    assert all(f"  {id} " in brief for id in ids)
    assert len(brief.splitlines()) <= (40 if id == "fig_interleaved" else 50)
    assert f"run it: reproduce {id}" in brief
    assert artifact.label in text
    assert all(claim.id in text for claim in artifact.claims)
    assert f"run it: reproduce {id}" in text
    assert all(len(line) <= 100 for line in text.splitlines() if line.startswith("points "))
    claims = as_json("describe", id)["claims"]
    assert len(claims) == len(artifact.claims)
    for claim in claims:
        assert "".join(f"tested as: {claim['tested_as']}".split()) in "".join(text.split())


def test_every_artifact_is_in_order():
    for id in catalog.ids():
        artifact = catalog.load(id)
        assert artifact.id == id
        for scale in artifact.scales:
            keys = [point.key for point in artifact.points(scale)]
            assert len(keys) == len(set(keys))
        assert len({claim.id for claim in artifact.claims}) == len(artifact.claims)


def test_a_run_says_ours_paper_verdicts_files_and_what_next(said, capsys, tmp_path):
    assert main(["fig_interleaved", "--results", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    for text in ("simulated on selene", "ratio", "own numbers disagree", "difference from the paper over 10 points"):
        assert text in out
    assert f"files: {tmp_path}/fig_interleaved/simulated/" in out
    assert "next: reproduce " in out
    assert err == "fig_interleaved: 10 points\n"
    assert "0 points computed, 10 reused" in said("fig_interleaved", "--results", tmp_path)


def test_the_main_experiment_fills_no_more_than_a_screen(said, monkeypatch, tmp_path):
    """The table, how many sentences hold and where to read why, how sure, the files, what next: 26 lines of 80."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "WIDTH", 80)
    printed = said("fig_interleaved", "--results", "r").splitlines()
    assert len(printed) <= 26
    assert all(len(line) <= 80 for line in printed if not line.startswith("files: "))
    assert [line for line in printed if line.startswith("9 of 12 sentences hold")]
    assert "Why: reproduce verify fig_interleaved --results r" in " ".join(printed)


def test_a_note_ends_where_a_part_of_its_sentence_does(said, tmp_path):
    """What stands in brackets after it is left to table.md; a finding that is contradicted keeps its beginning."""
    printed = said("fig_interleaved", "--results", tmp_path)
    assert "ratios of two within -6.6% to +7.1% ... (table.md)\n" in printed
    printed = " ".join(said("table_weak_scaling", "--results", tmp_path).split())
    assert "the authors' script interleaves 4 of the 6 models that it pipelines ... (table.md)" in printed
    assert "communication over computation by model: 1.7B: ... (table.md)" in printed


def test_chosen_columns_are_printed_and_exported_and_the_record_keeps_all(capsys, load_small, tmp_path):
    """A later run without --columns has the whole table again, although no point is computed."""
    folder, command = tmp_path / "fig_squares" / "derived", ["fig_squares", "--results", str(tmp_path)]
    assert main(command) == 0
    whole = {name: (folder / name).read_bytes() for name in ("table.md", "table.tex", "table.csv", "record.json")}
    capsys.readouterr()
    assert main([*command, "--columns", "ours, x"]) == 0
    assert "0 points computed, 5 reused" in (printed := capsys.readouterr().out)
    assert re.search(r"^ *\[derived\] +x *$", printed, re.MULTILINE)
    assert "verdict" not in printed
    assert re.search(r"^\| +ours \(ms\) \[derived\] \| +x \|$", (folder / "table.md").read_text(), re.MULTILINE)
    assert r"\shortstack{ours\\{}(ms)\\{}[derived]} & x \\" in (folder / "table.tex").read_text()
    assert {name: (folder / name).read_bytes() for name in ("table.csv", "record.json")} == {
        name: whole[name] for name in ("table.csv", "record.json")
    }
    assert main(command) == 0
    assert {name: (folder / name).read_bytes() for name in whole} == whole


def test_a_run_as_json(load_small, tmp_path, as_json):
    document = as_json("fig_squares", "--results", tmp_path)
    (artifact,) = document["artifacts"]
    assert document["exit_code"] == 0
    assert (artifact["id"], artifact["computed"], artifact["reused"]) == ("fig_squares", 5, 0)
    assert Record.from_json(artifact["record"]).points[1].metrics["square"].value == 4
    assert Path(artifact["folder"], "record.json").exists()


def test_dry_run_runs_nothing(said, load_small, counter, tmp_path, as_json):
    text = said("fig_squares", "--dry-run", "--results", tmp_path)
    assert "would evaluate 5 points, derived, scale paper" in text
    assert str(tmp_path / "fig_squares" / "derived") in text
    assert len(as_json("fig_squares", "--dry-run", "--results", tmp_path)["artifacts"][0]["points"]) == 5
    assert counter.calls == []
    assert list(tmp_path.iterdir()) == []


def test_alone_it_says_what_to_do_first(said):
    text = said(code=errors.NOTHING_SELECTED)
    assert len(lines(text)) < 12
    in_a_clone = text.replace("  reproduce", "  .venv/bin/reproduce")
    assert max(map(len, lines(in_a_clone))) <= 80
    for command in ("fig_interleaved", "all", "report", "doctor", "--help"):
        assert f"  reproduce {command} " in text


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("ptdp ")


def test_help_lists_commands_and_exit_codes_on_80_columns(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert max(map(len, lines(printed))) <= 80
    text = " ".join(printed.split())
    for code, meaning in errors.MEANINGS.items():
        assert f" {code} {meaning}" in text
    for name in COMMANDS.keys() - {"gate trials"}:  # which the help of `gate` names
        assert name in text


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_says_where_the_exit_codes_are(name, capsys):
    with pytest.raises(SystemExit):
        main([*name.split(), "--help"])
    assert capsys.readouterr().out.endswith("\nexit codes: reproduce --help lists them\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_its_examples_in_one_place_and_fits_80_columns(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*name.split(), "--help"])
    printed = lines(capsys.readouterr().out)
    assert sum(line in ("example:", "examples:") for line in printed) == 1
    assert max(map(len, printed)) <= 80


def test_failed_points(said, load_small, counter, tmp_path):
    counter.fail_at = {2: RuntimeError("boom")}
    text = said("fig_squares", "--results", tmp_path, code=errors.POINTS_FAILED)
    assert "squares, x=2: failed: RuntimeError: boom" in text
    assert f"next: reproduce fig_squares --debug --results {tmp_path}" in text


def test_strict(said, load_small, tmp_path):
    assert main(["fig_squares", "--results", str(tmp_path)]) == 0
    assert "contradicted" in said("fig_squares", "--results", tmp_path, "--strict", code=errors.CONTRADICTED)


def test_an_invalid_earlier_result(capsys, load_small, tmp_path):
    path = tmp_path / "fig_squares" / "derived" / "record.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert main(["fig_squares", "--results", str(tmp_path)]) == errors.INVALID_RESULTS
    message = error_of(capsys)
    assert str(path) in message
    assert "--fresh" in message
    assert path.read_text() == "{}"


def test_interrupted(said, capsys, monkeypatch, tmp_path):
    real, calls = simulated.simulate, []

    def simulate(*arguments, **options):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(simulated, "simulate", simulate)
    assert main(["fig_interleaved", "--fresh", "--results", str(tmp_path)]) == errors.INTERRUPTED
    assert error_of(capsys) == (
        "reproduce: interrupted: 3 of 10 points of fig_interleaved are finished and kept; "
        f"resume with: reproduce fig_interleaved --results {tmp_path}"
    )
    assert "7 points computed, 3 reused" in said("fig_interleaved", "--results", tmp_path)


def test_interrupted_it_counts_what_earlier_runs_finished(capsys, load_small, counter, tmp_path):
    counter.fail_at = {1: RuntimeError("boom"), 6: KeyboardInterrupt()}
    assert main(["fig_squares", "--results", str(tmp_path)]) == errors.POINTS_FAILED
    capsys.readouterr()
    assert main(["fig_squares", "--results", str(tmp_path)]) == errors.INTERRUPTED
    assert "interrupted: 4 of 5 points of fig_squares are finished and kept" in error_of(capsys)


def test_interrupted_outside_a_run(capsys, monkeypatch):
    def interrupt(paper):
        raise KeyboardInterrupt

    monkeypatch.setattr("reproduce.experiment.catalog.ids", interrupt)
    assert main(["list"]) == errors.INTERRUPTED
    assert error_of(capsys) == "reproduce: interrupted; resume with: reproduce list"


def test_a_file_where_the_results_should_go(capsys, load_small, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert main(["fig_squares", "--results", str(tmp_path / "file")]) == errors.UNAVAILABLE
    assert "try another --results or --out" in error_of(capsys)


def test_a_limit_on_file_sizes(tmp_path):
    done = subprocess.run(
        # -B: the interpreter would cut off the compiled files that it writes, and fail at the next start.
        [sys.executable, "-B", "-m", "reproduce", "table_zero3", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )
    assert done.returncode == errors.UNAVAILABLE
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "table_zero3" / "simulated").iterdir()) == []


def test_an_internal_error_is_one_line(capsys, monkeypatch):
    def broken(paper):
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr("reproduce.experiment.catalog.ids", broken)
    assert main(["list"]) == errors.INTERNAL
    assert error_of(capsys) == (
        "reproduce: internal error: ZeroDivisionError: division by zero; rerun with --debug for the traceback"
    )
    assert main(["list", "--debug"]) == errors.INTERNAL
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        "describe fig_interleaved",
        "--help",  # argparse prints
        "verify fig_gpipe_timeline -q --results {}",  # rich prints
    ],
)
def test_a_reader_that_stops_is_no_error(arguments, tmp_path):
    """The pipe is closed before the command writes."""
    command = f"{sys.executable} -m reproduce {arguments.format(tmp_path)} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert lines(done.stdout) == ["0"]


def test_a_full_standard_output():
    command = ["bash", "-c", f"{sys.executable} -m reproduce list --json > /dev/full"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == errors.UNAVAILABLE
    assert lines(done.stderr) == ["reproduce: cannot write standard output: no space left on device"]


@pytest.fixture
def foreign(tmp_path):
    """A folder with packages of the names of ours, as Hugging Face's and PyPI's are."""
    for name in ("kernels", "benchmarks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the wrong package')\n")
    return tmp_path


def started(*command, foreign, ours=False):
    """The end of a program where other packages have our names; with `ours` behind them on the path."""
    path = os.pathsep.join([str(foreign), *([str(ROOT)] if ours else [])])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=foreign, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("command", [(str(SCRIPT),), (sys.executable, "-m", "reproduce")])
def test_our_packages_win_over_others_of_the_same_name(command, foreign):
    if command[0] == str(SCRIPT) and not SCRIPT.exists():
        pytest.skip("the project is not installed")
    done = started(*command, "list", foreign=foreign, ours="-m" in command)
    assert done.returncode == 0, done.stderr
    assert "fig_interleaved" in done.stdout


@pytest.mark.parametrize("name", ["kernels", "benchmarks"])
def test_a_package_that_was_there_before_us_is_an_error(name, foreign):
    (foreign / name / "__init__.py").write_text("")
    first = f"import {name}, sys; sys.path.insert(0, {str(ROOT)!r})"
    then = "from reproduce.cli import main; sys.exit(main(['list']))"
    done = started(sys.executable, "-c", f"{first}; {then}", foreign=foreign)
    assert done.returncode == errors.UNAVAILABLE
    assert str(foreign / name) in done.stderr
    assert "Traceback" not in done.stderr


def test_the_tables_are_printed_before_the_figure_is_drawn(tmp_path, capsys, monkeypatch):
    seen = []
    contents = export.contents
    monkeypatch.setattr(export, "contents", lambda *made: seen.append(capsys.readouterr().out) or contents(*made))
    assert main(["table_zero3", "--results", str(tmp_path)]) == errors.DONE
    assert "sentences hold" in seen[0]
    assert capsys.readouterr().out.startswith("files: ")
