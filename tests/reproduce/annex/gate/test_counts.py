"""What a step does, in numbers that two runs of the same code share."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reproduce.annex.gate.counts import counted
from results import ROOT


def test_bytes_read_and_written_are_those_of_the_step(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"x" * 12345)

    def step():
        target.write_bytes(source.read_bytes()[:67])

    found = counted(step, tmp_path, [])
    assert (found["bytes read"], found["bytes written"]) == (12345, 67)
    assert (found["opened source"], found["opened target"]) == (1, 1)
    assert {what: n for what, n in counted(lambda: None, tmp_path, []).items() if what.startswith("bytes")} == {
        "bytes read": 0,
        "bytes written": 0,
    }


def test_what_a_step_keeps_is_told_from_what_it_needs_meanwhile(tmp_path):
    kept = []
    leaks = counted(lambda: kept.append(bytes(50_000)), tmp_path, [])
    returns = counted(lambda: len(bytes(50_000)), tmp_path, [])
    assert (leaks["16 KiB allocated that stay"], returns["16 KiB allocated that stay"]) == (3, 0)
    assert returns["16 KiB allocated at the peak"] == 3


def test_operators_of_torch_their_bytes_and_what_waits_are_counted(tmp_path):
    torch = pytest.importorskip("torch")
    numbers = torch.ones(10)

    def step():
        return float((numbers + 1).sum())

    found = counted(step, tmp_path, [])
    assert found["torch aten.add.Tensor"] == found["torch aten.sum.default"] == 1
    assert found["torch bytes of results"] == 40 + 4
    assert found["torch synchronisations"] == 1


SOURCE = """\
class Sum:
    def __init__(self):
        self.total = 0

    def add(self, i):
        self.total += square(i)


def square(i):
    return i * i


def work():
    found = Sum()
    for i in range(5):
        found.add(i)
    return found.total
"""
COUNTING = """\
import json, runpy, sys
sys.path.insert(0, sys.argv[2])
import pkg
counted = runpy.run_path(sys.argv[1])["counted"]
found = counted(pkg.work, __import__("pathlib").Path(sys.argv[2]), [])
print(json.dumps([hasattr(sys, "monitoring"), found]))
"""


def interpreter(version):
    """An interpreter of this version that runs: this one, one on the path, or pyenv's."""
    own = sys.executable if f"{sys.version_info.major}.{sys.version_info.minor}" == version else None
    found = [own, shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}*/bin/python")]
    for path in filter(None, found):
        if not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode:
            return str(path)
    return None


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_calls_are_counted_alike_by_the_profile_hook_and_by_sys_monitoring(version, tmp_path):
    """`sys.monitoring` is there from Python 3.12 on."""
    if not (python := interpreter(version)):
        pytest.skip(f"there is no Python {version} here")
    (tmp_path / "pkg.py").write_text(SOURCE)
    done = subprocess.run(
        [python, "-c", COUNTING, str(ROOT / "reproduce/annex/gate/counts.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    monitored, found = json.loads(done.stdout)
    assert monitored == (version != "3.11")
    assert {what: n for what, n in found.items() if what.startswith("calls")} == {
        "calls pkg.py:work": 1,
        "calls pkg.py:Sum.__init__": 1,
        "calls pkg.py:Sum.add": 5,
        "calls pkg.py:square": 5,
    }


def test_modules_of_the_tree_and_of_the_language_are_no_imports(tmp_path):
    """A module that is split is no regression, and `from __future__ import annotations` neither."""
    assert "imported json" in counted(lambda: None, tmp_path, ["json"])
    assert not [w for w in counted(lambda: None, tmp_path, ["__future__"]) if w.startswith("imported")]
    inside = Path(__file__).parent
    assert not [w for w in counted(lambda: None, inside, [__name__]) if w.startswith("imported")]
