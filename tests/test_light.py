"""What starts light stays light: `light.txt` says which code may not import what."""

import pytest

from results import ROOT
from tests.processes import python

CHECK = """
try:
    exec({code!r}, {{}})
except SystemExit:
    pass
import sys
heavy = {heavy!r}
sys.exit(" ".join(name for name in sys.modules if f"{{name}}.".startswith(heavy)) or None)
"""


def rows():
    lines = (ROOT / "tests" / "light.txt").read_text(encoding="utf-8").splitlines()
    told = [line for line in lines if line and not line.startswith("#")]
    for code, heavy in zip(told[::2], told[1::2], strict=True):
        marks = [pytest.mark.slow] * code.startswith("slow ")
        yield pytest.param(code.removeprefix("slow "), tuple(f"{name}." for name in heavy.split()), marks=marks)


@pytest.mark.parametrize(("code", "heavy"), list(rows()))
def test_it_imports_nothing_of_it(code, heavy):
    python("-c", CHECK.format(code=code, heavy=heavy))
