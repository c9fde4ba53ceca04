"""`pytest --gate --base REF`: tests with a `benchmark` fixture as workloads of the gate."""

import json
import os
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from results import ROOT
from tests.reproduce.annex.gate.conftest import begin, commit_all, git

PACKAGE = "def total(n):\n    return sum(map(square, range(n)))\n\n\ndef square(i):\n    return i * i\n"
TESTS = """\
import pytest
from pkg import total


@pytest.fixture
def size():
    yield 300


def test_total(benchmark, size):
    assert benchmark(total, size) > 0


def test_pedantic(benchmark):
    benchmark.pedantic(total, args=(20,), rounds=3)


def test_plain():
    assert total(3) == 5
"""


HELPER = PACKAGE.replace("return i * i", "return helper(i)\n\n\ndef helper(i):\n    return i * i")
READS = PACKAGE.replace("return i * i", "return i * i + len(open(__file__).read()[:0])")


@pytest.fixture
def suite(tmp_path):
    root = tmp_path / "suite"
    root.mkdir()
    (root / "pkg.py").write_text(PACKAGE)
    (root / "test_speed.py").write_text(TESTS)
    (root / "conftest.py").touch()
    begin(root)
    return root


def pytest_in(root, *options, xdist=False):
    others = ["no:cacheprovider"] if xdist else ["no:cacheprovider", "no:xdist"]
    command = [sys.executable, "-m", "pytest", "-q", *(word for other in others for word in ("-p", other)), *options]
    where = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=root, env=where, capture_output=True, text=True, check=False)


GATE = ("--gate", "--gate-budget", "1s")  # the plugin is an entry point of the installed project


def test_more_work_fails_its_test_and_no_other(suite, tmp_path):
    (suite / "pkg.py").write_text(READS)
    git(suite, "commit", "--quiet", "--all", "--message", "more")
    junit, document = tmp_path / "junit.xml", tmp_path / "gate.json"
    done = pytest_in(suite, *GATE, "--base", "first", "--junitxml", str(junit), "--gate-json", str(document))
    assert done.returncode == 6, done.stdout + done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("FAILED test_speed.py::test_pedantic - "))
    assert "bytes read 0 -> " in line  # and not that its time is inconclusive
    assert "performance gate" in done.stdout
    failed = {case.get("name"): case.find("failure") is not None for case in ElementTree.parse(junit).iter("testcase")}
    assert failed == {"test_total": True, "test_pedantic": True, "test_plain": False}
    assert "opened pkg.py 0 -> 20" in json.loads(document.read_text())["counts"]["test_speed.py::test_pedantic"]
    assert git(suite, "status", "--short") == ""


@pytest.mark.parametrize(("package", "counts"), [(HELPER, "true"), (READS, "false")], ids=["calls", "counts = false"])
def test_more_calls_or_what_nobody_wants_counted_fails_no_test(suite, package, counts):
    (suite / "pyproject.toml").write_text(f"[tool.ptdp.gate]\ncounts = {counts}\n")
    commit_all(suite, "base")
    (suite / "pkg.py").write_text(package)
    git(suite, "commit", "--quiet", "--all", "--message", "more")
    done = pytest_in(suite, *GATE, "--base", "HEAD~1")
    assert done.returncode in (7, 9), done.stdout + done.stderr
    assert "1 passed, 2 skipped" in done.stdout
    said = "calls pkg.py:helper 0 -> 300, a note" if counts == "true" else "counts: the project wants none"
    assert said in done.stdout


def test_the_same_work_is_skipped_where_the_budget_does_not_tell(suite):
    (suite / "conftest.py").write_text("# a comment\n")
    git(suite, "commit", "--quiet", "--all", "--message", "comment")
    done = pytest_in(suite, "--gate", "--gate-budget", "3s", "--base", "first")
    assert done.returncode in (7, 9), done.stdout + done.stderr  # 9: not even one pair
    assert "1 passed, 2 skipped" in done.stdout


def test_a_project_may_have_our_names_options_of_other_plugins_and_tests_that_are_skipped(suite):
    (suite / "benchmarks").mkdir()
    for module in ("__init__", "own"):
        (suite / f"benchmarks/{module}.py").touch()
    (suite / "conftest.py").write_text("import benchmarks.own\n")
    (suite / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '-n 2'\n")
    later = "\n\n@pytest.mark.skip\ndef test_later(benchmark):\n    pass\n"
    (suite / "test_speed.py").write_text(TESTS.replace("\n\ndef test_pedantic", f"{later}\n\ndef test_pedantic"))
    commit_all(suite, "base")
    git(suite, "commit", "--quiet", "--allow-empty", "--message", "head")
    done = pytest_in(suite, *GATE, "--base", "HEAD~1", xdist=True)
    assert done.returncode in (7, 9), done.stdout + done.stderr
    assert "test_speed.py::test_total: as on base" in done.stdout
    assert "test_speed.py::test_later: not compared: base HEAD~1" in done.stdout
    assert "1 passed, 3 skipped" in done.stdout


def test_a_test_that_fails_on_head_says_why(suite):
    (suite / "test_speed.py").write_text(TESTS.replace("yield 300", "raise LookupError('no size')"))
    git(suite, "commit", "--quiet", "--all", "--message", "broken")
    done = pytest_in(suite, *GATE, "--base", "first")
    assert done.returncode == 3
    assert "cannot run test_speed.py::test_total: LookupError: no size" in done.stdout + done.stderr


PARAMETERS = """\
import pytest
from pkg import total


@pytest.mark.parametrize("n", [3, 5])
def test_sized(benchmark, n):
    benchmark(total, n)
"""
OWN_VERSION = "from importlib.metadata import version\n\nversion('of-nobody')\n"


@pytest.mark.parametrize(
    ("tests", "asked", "code", "said"),
    [
        (
            PARAMETERS,
            "test_speed.py::test_sized",
            (7, 9),
            ["test_speed.py::test_sized[3]", "test_speed.py::test_sized[5]"],
        ),
        (TESTS, "test_speed.py", (7, 9), ["test_speed.py::test_total", "test_speed.py::test_pedantic"]),
        (
            OWN_VERSION,
            "test_speed.py::test_a",
            (3,),
            ["PackageNotFoundError: No package metadata was found for of-nobody; needs that package installed, as"],
        ),
    ],
    ids=["a name without its parameter", "a file", "the version of a package that is not there"],
)
def test_a_name_of_several_tests_runs_all_of_them(suite, tests, asked, code, said):
    """The first of several was once measured under the name of all."""
    (suite / "test_speed.py").write_text(tests)
    for side in ("base", "head"):
        git(suite, "commit", "--quiet", "--all", "--allow-empty", "--message", side)
    command = [sys.executable, "-m", "ptdp", "gate", f"--project={suite}", "--base=HEAD~1", f"--benchmark={asked}"]
    command += ["--budget=1s", f"--results={suite}"]
    where = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=suite, env=where, capture_output=True, text=True, check=False)
    assert done.returncode in code, done.stdout + done.stderr
    told = done.stderr if 3 in code else done.stdout
    assert all(any(each in line and len(line) < 300 for line in told.splitlines()) for each in said), told
    assert 3 not in code or len(told.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (GATE, 4, "needs --base REF"),
        ((*GATE, "--base", "nowhere"), 2, "names no commit here"),
        ((*GATE, "--base", "first"), 9, "are the same commit"),
    ],
)
def test_what_cannot_be_compared_is_one_line(suite, options, code, said):
    done = pytest_in(suite, *options)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_unless_asked_the_plugin_imports_nothing_and_changes_nothing(suite):
    (suite / "test_speed.py").write_text("import sys\n\n\ndef test_a():\n    assert 'benchmarks' not in sys.modules\n")
    done = pytest_in(suite)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
