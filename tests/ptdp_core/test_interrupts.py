"""Signals end a program once, and not where they are held: each script below sends them to itself."""

import subprocess
import sys

import pytest

PROGRAM = """
import signal, sys
from ptdp_core.interrupts import allowed, check, held, received, run_program
def main():
{body}
    return 0
run_program("it", main)
"""
CASES = {
    "at once": ("signal.raise_signal(signal.SIGINT); print('not reached')", 130, ""),
    "SIGTERM has a code of its own": ("signal.raise_signal(signal.SIGTERM)", 143, ""),
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
    "nothing comes": ("with held(), allowed(): check(); print(received())", 0, "None"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_signal(name: str) -> None:
    body, code, printed = CASES[name]
    script = PROGRAM.format(body="\n".join(f"    {line}" for line in body.splitlines()))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (code, printed), done.stderr
    assert done.stderr == ("it: interrupted\n" if code else "")
