"""The steps of `reproduce bench gpu`: in order, resumed, each with its limit; and all of them at toy sizes (slow)."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from reproduce.commands import bench
from reproduce.running import gpu_session
from reproduce.running.gpu_session import SessionStep
from results.records.errors import DONE, UsageError

ONCE = "import sys, pathlib; p = pathlib.Path(sys.argv[1]); p.write_text(p.read_text() + 'x' if p.exists() else 'x')"


def python(name: str, text: str, *words: str) -> SessionStep:
    return SessionStep(name, f"the {name} step", (sys.executable, "-c", text, *words))


def test_steps_run_in_order_and_what_has_passed_is_not_run_again(tmp_path: Path) -> None:
    mark, told = tmp_path / "mark", list[str]()
    cured = tmp_path / "cured"
    fails = f"import pathlib, sys; sys.exit(0 if pathlib.Path({str(cured)!r}).exists() else 'no such thing')"
    steps = [
        python("good", ONCE, str(mark)),
        python("bad", fails),
        python("slow", "import time; time.sleep(60)"),
        SessionStep("lacking", "a step that cannot be", ("a-program-that-is-nowhere",)),
    ]
    outcomes = gpu_session.run(steps, tmp_path / "session", told.append, limit_s=3)
    assert [row.status for row in outcomes.values()] == ["passed", "failed", "too long", "skipped"]
    assert outcomes["bad"].said == "no such thing"
    assert outcomes["lacking"].said == "a-program-that-is-nowhere is not on the path"
    assert "no such thing" in (tmp_path / "session" / "bad.log").read_text()
    cured.touch()
    again = gpu_session.run(steps[:2], tmp_path / "session", told.append)
    assert [row.status for row in again.values()] == ["passed", "passed"]
    assert mark.read_text() == "x"
    assert told[-3] == "[1/2] good: the good step: passed before"
    assert set(json.loads((tmp_path / "session" / "session.json").read_text())) == {step.name for step in steps}


def test_every_step_of_a_real_session_is_on_the_gpu(tmp_path: Path) -> None:
    for step in gpu_session.steps(tmp_path, toy=False):
        words = " ".join(step.command)
        assert any(sign in words for sign in ("cuda", "-m gpu", "--scale gpu", "compute-sanitizer")), words
        # Without it torchrun leaves a folder for its ranks' output among the temporary files.
        assert "torch.distributed.run" not in words or f"--log-dir {tmp_path}" in words


def parsed(results: Path, **options: object) -> Namespace:
    return Namespace(
        **{"results": results, "toy": True, "step": None, "list": False, "quiet": True, "json": False} | options
    )


def test_a_step_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown step 'peeks'; did you mean 'peaks'\?; there are tests, sanitizer"):
        bench.run_session(parsed(tmp_path, step=["peeks"]))


def test_the_plan_of_a_session(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run_session(parsed(tmp_path, toy=False, list=True)) == DONE
    assert capsys.readouterr().out.count("--device cuda") >= 4


@pytest.mark.slow
def test_the_whole_session_runs_on_a_cpu_at_toy_sizes(tmp_path: Path) -> None:
    assert bench.run_session(parsed(tmp_path)) == DONE, (tmp_path / "gpu-toy" / "session.json").read_text()
