"""Signals end a program once, and not where they are held: each script below sends them to itself."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

PROGRAM = """
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which whoever runs these tests under nohup ignores
from ptdp_core.interrupts import allowed, check, held, received, run_program, settle
def main():
{body}
    return 0
run_program("it", main)
"""
CASES = {
    "at once": ("signal.raise_signal(signal.SIGINT); print('not reached')", 130, ""),
    "SIGTERM has a code of its own": ("signal.raise_signal(signal.SIGTERM)", 143, ""),
    "SIGHUP, too": ("signal.raise_signal(signal.SIGHUP); print('not reached')", 129, ""),
    "held, it comes after the block": (
        "with held(): signal.raise_signal(signal.SIGINT); print('made')\nprint('not reached')",
        130,
        "made",
    ),
    "held in an outer block, too": (
        "with held():\n with held(): signal.raise_signal(signal.SIGINT)\n print('made')",
        130,
        "made",
    ),
    "allowed, it comes inside": (
        "with held():\n signal.raise_signal(signal.SIGINT); print('made')\n with allowed(): print('not reached')",
        130,
        "made",
    ),
    "the first one counts, later ones disturb no clean-up": (
        "try: signal.raise_signal(signal.SIGTERM)\nfinally: signal.raise_signal(signal.SIGINT); print('undone')",
        143,
        "undone",
    ),
    "lost, it comes back": (
        "try: signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt: print(received().name)\ncheck()",
        130,
        "SIGINT",
    ),
    "lost, it comes back by itself": (
        "try: signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt: print('lost')\nwhile True: signal.pause()",
        130,
        "lost",
    ),
    "it does not come back into a clean-up, nor where that handles an error": (
        "try: signal.raise_signal(signal.SIGINT)\nfinally:\n"
        " signal.raise_signal(signal.SIGALRM)\n"
        " try: open('/nowhere/at/all')\n"
        " except OSError: signal.raise_signal(signal.SIGALRM); print('undone')",
        130,
        "undone",
    ),
    "nor where what a library made of it is handled": (
        "try:\n try: signal.raise_signal(signal.SIGINT)\n except KeyboardInterrupt: raise ValueError from None\n"
        "except ValueError: signal.raise_signal(signal.SIGALRM); check(); print('handled')\ncheck()",
        130,
        "handled",
    ),
    "nor after it is settled": (
        "try: signal.raise_signal(signal.SIGTERM)\nexcept KeyboardInterrupt: print(settle())\n"
        "for number in (signal.SIGALRM, signal.SIGINT): signal.raise_signal(number)\nwith held(), allowed(): check()",
        0,
        "143",
    ),
    "lost, it comes back where work begins": (
        "try: signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt: print('lost')\n"
        "with held(), allowed(): print('not reached')",
        130,
        "lost",
    ),
    "ignored by whoever started it": (
        "signal.signal(signal.SIGINT, signal.SIG_IGN); run_program('it', lambda: signal.raise_signal(2) or 0)",
        0,
        "",
    ),
    "started by nohup": (
        "signal.signal(signal.SIGHUP, signal.SIG_IGN); run_program('it', lambda: signal.raise_signal(1) or 0)",
        0,
        "",
    ),
    "nothing comes": ("with held(), allowed(): check(); print(received())", 0, "None"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_signal(name):
    check_program(*CASES[name])


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
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (code, printed), done.stderr
    assert done.stderr == ("it: interrupted\n" if code else "")
