"""Signals end a program once, and not where they are held: each script of `interrupts.txt` sends them to itself."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.processes import python

PROGRAM = """
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which whoever runs these tests under nohup ignores
from ptdp_core.interrupts import allowed, check, held, received, run_program, settle
def main():
{body}
    return 0
run_program("it", main)
"""


def programs():
    """The cases of `interrupts.txt`: a name at the margin, below it the lines of `main`, then code and output."""
    name, body = "", []
    for line in Path(__file__).with_name("interrupts.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            body.append(line.removeprefix("    "))
        elif line.startswith("  "):
            code, _, printed = line.strip().partition(":")
            yield pytest.param("\n".join(body), int(code), printed.strip(), id=name)
        else:
            name, body = line, []


@pytest.mark.parametrize(("body", "code", "printed"), list(programs()))
def test_a_signal(body, code, printed):
    check_program(body, code, printed)


def test_during_an_import_no_call_is_broken_off(tmp_path):
    """C++ that a module calls may clear the exception or abort; the module's own next line may not."""
    (tmp_path / "slow.py").write_text("import signal\nprint(signal.raise_signal(signal.SIGINT))\nprint('not reached')")
    check_program(f"sys.path.insert(0, {str(tmp_path)!r})\nimport slow", 130, "None")


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
def test_nothing_is_said_of_what_is_left_at_the_end():
    check_program("import triton", 0, "")


def check_program(body, code, printed):
    """Assert the exit code and the output of a program whose `main` has this body."""
    script = PROGRAM.format(body="\n".join(f"    {line}" for line in body.splitlines()))
    done = python("-c", script, code=code)
    assert done.stdout.strip() == printed
    assert done.stderr == ("it: interrupted\n" if code else "")
