"""The gate on projects that are not this one: what their pyproject.toml says, and what their workloads do."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from textwrap import dedent

import pytest

from reproduce.annex.gate import launcher, project, report, run, trees
from reproduce.annex.gate.launcher import ProcessLauncher
from reproduce.annex.gate.trees import BASE, HEAD, Tree
from results import ROOT
from results.records import provenance
from results.records.errors import UnavailableError, UsageError
from tests.reproduce.annex.gate.conftest import begin, commit_all, git

PACKAGE = "def total(n):\n    return sum(square(i) for i in range(n))\n\n\ndef square(i):\n    return i * i\n"
BENCH = """\
from pkg import total


def made():
    print("set up")
    return lambda: total(100)


def itself():
    total(50)


def random_result():
    return lambda: object()
"""


BAD = """\
import os
import sys
import time


def raises():
    raise ValueError("two\\nlines")


def leaves():
    sys.exit(3)


def reads():
    input()


def dies():
    os._exit(0)


def hangs():
    time.sleep(1000)
"""


@pytest.fixture
def foreign(tmp_path):
    """A small project in a src folder, with one commit, tagged 'first'."""
    root = tmp_path / "foreign"
    (root / "src/pkg").mkdir(parents=True)
    (root / "src/pkg/__init__.py").write_text(PACKAGE)
    (root / "bench.py").write_text(BENCH)
    table = 'made = "bench:made"\nitself = "bench:itself"\nrandom_result = "bench:random_result"\n'
    (root / "pyproject.toml").write_text(f"[tool.ptdp.gate.workloads]\n{table}cli = {{command = 'python -c pass'}}\n")
    begin(root)
    return root


def change(root, name, text):
    (root / name).write_text(text)
    git(root, "commit", "--quiet", "--all", "--message", "change")


def sides(root, folder):
    return trees.build(root, {BASE: "first", HEAD: "HEAD"}, folder / "trees")


def test_a_project_names_functions_commands_and_tests(foreign):
    found = project.read(foreign)
    assert found.suite == ("made", "itself", "random_result", "cli")
    assert found.workloads["made"] == {"kind": "function", "function": "bench:made", "packages": []}
    assert found.workloads["cli"]["command"] == "python -c pass"
    assert (found.exact, found.slowed, found.counts) == ("", "", True)


def test_this_project_is_a_client_of_the_same_interface():
    own = project.read(ROOT)
    assert own.suite == ("pipeline_step", "simulator")
    assert {each["adapter"] for each in own.workloads.values()} == {"benchmarks.gated.adapter benchmarks.gate.adapter"}
    assert (own.exact, own.sources) == ("reproduce gate exact", provenance.SOURCES)


ONE = "[tool.ptdp.gate.workloads]\na = 'b:c'\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no .tool.ptdp.gate.workloads"),
        ("[tool.ptdp.gate]\nworkload = {}\n", "tool.ptdp.gate.workload is unknown; did you mean 'workloads'"),
        ("[tool.ptdp.gate]\npackage = []\n" + ONE, "did you mean 'packages'"),
        ("[tool.ptdp.gate.workloads]\na = 'bench'\n", "needs module:name"),
        ("[tool.ptdp.gate.workloads]\na = 3\n", 'needs "module:function", or'),
        ("[tool.ptdp.gate.workloads]\na = {shell = 'x'}\n", 'needs "module:function", or'),
        ("[tool.ptdp.gate]\npackages = 'numpy'\n" + ONE, "needs a list of modules"),
        ("[tool.ptdp.gate]\ncounts = 1\n" + ONE, "needs true, false, or .allocations."),
        ("[tool.ptdp.gate]\ncounts = 'memory'\n" + ONE, "needs true, false, or .alloca"),
        ("[tool.ptdp.gate]\nsuite = ['b']\n" + ONE, "suite: 'b' is no workload"),
        ("[tool.ptdp.gate]\nexact = 1\n" + ONE, "needs a text, a module to run"),
        ("[tool.ptdp.gate]\nworkloads = 'none.py'\n", "workloads='none.py' cannot be run: FileNotFoundError"),
        ("[tool.ptdp.gate.workloads]\na = {function = 'b:c', sizes = [2, 1]}\n", "needs two whole numbers"),
        ("[tool.ptdp.gate.workloads]\na = {function = 'b:c', sizes = [0, 1]}\n", "needs two whole numbers from 1 on"),
        ("[tool.ptdp.gate.workloads]\na = {command = 'b', sizes = [1, 2]}\n", 'needs "module:function", or'),
        ("[tool", "cannot be read"),
    ],
)
def test_what_a_table_may_not_say_is_one_line(tmp_path, text, said):
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=said) as error:
        project.read(tmp_path)
    assert "\n" not in str(error.value)


def test_a_project_that_is_not_there_or_says_nothing(tmp_path):
    with pytest.raises(UsageError, match=r"--project .*/nowhere is no folder; needs a git checkout; try --project .$"):
        project.read(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"pyproject.toml is not there; needs one with .tool.ptdp.gate.workloads. "):
        project.read(tmp_path)


def test_every_kind_of_workload_is_measured_on_both_sides(foreign, tmp_path):
    change(foreign, "src/pkg/__init__.py", PACKAGE + "\nX = 1\n")
    benchmarks = project.of(foreign, ()).workloads
    started = ProcessLauncher(sides(foreign, tmp_path), benchmarks)
    assert started.lacking() == {}
    started.start(list(benchmarks))
    try:
        assert all(0 < started.run(side, name) < 5 for side in (BASE, HEAD) for name in benchmarks)
    finally:
        started.stop()


def test_counts_of_a_step_are_compared_and_what_varies_is_left_out(foreign, tmp_path):
    twice = PACKAGE.replace("sum(square(i) for", "sum(square(i) + 0 * square(i) for")
    change(foreign, "src/pkg/__init__.py", twice)
    built, benchmarks = sides(foreign, tmp_path), project.of(foreign, ["made", "itself"]).workloads
    found = run.counted(ProcessLauncher(built, benchmarks), ["made", "itself"])
    counts = found.changes
    assert "made: calls src/pkg/__init__.py:square 100 -> 200" in found.text
    assert "itself: calls src/pkg/__init__.py:square 50 -> 100" in found.text
    assert all(change.grown for change in counts["made"] if change.what.startswith("calls"))
    assert not any(change.fails for change in counts["made"])
    same = run.counted(ProcessLauncher(built | {BASE: built[HEAD]}, benchmarks), ["made", "itself"])
    assert (same.changes, same.failed, same.status) == ({"made": [], "itself": []}, False, "same")


HELPER = "def total(n):\n    return sum(square(i) for i in range(n))\n\n\ndef square(i):\n    return helper(i)\n\n\n"
HELPER += "def helper(i):\n    return i * i\n"
QUADRATIC = PACKAGE.replace("return i * i", "return sum(unit() for j in range(i * i) if j % i == 0)")
QUADRATIC += "\n\ndef unit():\n    return 1\n"
READS = PACKAGE.replace("return i * i", "return i * i + len(open(__file__).read()[:0])")


@pytest.mark.parametrize(
    ("package", "items", "fails", "named"),
    [
        (HELPER, "n", False, "calls src/pkg/__init__.py:helper 0 -> 10"),  # a refactoring, for each item
        (PACKAGE.replace("i * i", "square(0) if i else 0"), "n", False, "calls src/pkg/__init__.py:square 10 -> 19"),
        (QUADRATIC, "n", True, "calls src/pkg/__init__.py:unit, more from size 10 to 20 0 -> 145"),
        # Head does less at the first size, and its work is quadratic.
        (PACKAGE, "n * n", True, "calls src/pkg/__init__.py:square, more from size 10 to 20 200 -> 300"),
        (READS, "n", True, "opened src/pkg/__init__.py 0 -> 10"),
    ],
    ids=["a helper", "twice", "grows faster", "grows faster from less", "reads files"],
)
def test_more_calls_are_a_note_and_more_of_anything_else_fails(package, items, fails, named, foreign, tmp_path):
    """A maintainer's first refactoring does not fail; what it does beside calls, or for each pair of items, does."""
    sized = "\n\ndef work(n):\n    return lambda: total({}) and None\n"
    table = '[tool.ptdp.gate.workloads]\nwork = {function = "pkg:work", sizes = [10, 20]}\n'
    (foreign / "src/pkg/__init__.py").write_text(PACKAGE + sized.format("n" if items == "n" else "20 * n"))
    change(foreign, "pyproject.toml", table)
    git(foreign, "tag", "--force", "first")
    change(foreign, "src/pkg/__init__.py", package + sized.format(items))
    found = run.counted(ProcessLauncher(sides(foreign, tmp_path), project.read(foreign).workloads), ["work"])
    assert named in found.text
    assert items == "n" or "work: calls src/pkg/__init__.py:square 200 -> 100" in found.text
    assert found.failed is fails, found.text
    note = "a note: the times decide" in next(line for line in found.text.splitlines() if named in line)
    assert note is not fails


def test_a_project_s_table_counts_for_tests_too(foreign):
    (foreign / "pyproject.toml").write_text('[tool.ptdp.gate]\ncounts = false\nsources = ["src"]\n')
    tests = project.of(foreign, ["test_speed.py::test_total"])
    assert (tests.counts, tests.sources, tests.suite) == (False, ("src",), ("test_speed.py::test_total",))
    (foreign / "pyproject.toml").unlink()
    assert project.of(foreign, ["test_speed.py::test_total"]).counts
    (foreign / "pyproject.toml").write_text("[tool.ptdp.gate]\ncount = false\n")
    with pytest.raises(UsageError, match=r"tool.ptdp.gate.count is unknown; did you mean 'counts'"):
        project.of(foreign, ["test_speed.py::test_total"])


def test_what_varies_between_two_runs_of_head_is_left_out_by_name(foreign, tmp_path):
    varies = "import os\n\n\ndef made():\n    return lambda: open(f'/tmp/../proc/{os.getpid()}/stat').close()\n"
    change(foreign, "bench.py", varies)
    git(foreign, "tag", "--force", "first")
    change(foreign, "src/pkg/__init__.py", PACKAGE + "# a comment\n")
    own = project.read(foreign)
    found = run.counted(ProcessLauncher(sides(foreign, tmp_path), own.workloads), ["made"])
    assert "made: left out, as it varies from run to run: opened /tmp/../proc/" in found.text
    assert not found.failed, found.text


def test_a_tree_with_changes_anywhere_is_refused(foreign):
    (foreign / "bench.py").write_text(BENCH + "# a change\n")
    with pytest.raises(UsageError, match="changes that no commit holds"):
        trees.require_different(foreign, project.read(foreign).sources, "first", None)


@pytest.mark.parametrize(
    ("bench", "why"),
    [
        (BENCH.replace("total(100)", "total(99)"), "its result differs between base and head"),
        (BENCH.replace("def made", "def other"), None),
    ],
)
def test_other_work_and_what_base_lacks_are_not_compared(foreign, tmp_path, bench, why):
    change(foreign, "bench.py", bench)
    built, benchmark = sides(foreign, tmp_path), project.of(foreign, ["made"]).workloads
    if why:
        assert why in ProcessLauncher(built, benchmark).lacking()["made"]
        return
    with pytest.raises(UnavailableError, match=r"head HEAD .* cannot run made: AttributeError: module 'bench'"):
        ProcessLauncher(built, benchmark).lacking()
    turned = {BASE: Tree(BASE, "x", "0" * 40, built[HEAD].folder, built[HEAD].python), HEAD: built[HEAD]}
    turned[HEAD] = Tree(HEAD, "first", "1" * 40, built[BASE].folder, built[BASE].python)
    assert "has no attribute 'made'" in ProcessLauncher(turned, benchmark).lacking()["made"]


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ({"kind": "function", "function": "bench:nothing"}, "AttributeError: module 'bench' has no attribute"),
        ({"kind": "function", "function": "nowhere:f"}, "'nowhere'; needs .* inside the environment of tox or nox"),
        ({"kind": "function", "function": "pkg.speedups:f"}, "No module named 'pkg.speedups'; needs .* build = "),
        ({"kind": "function", "function": "bad:raises"}, "cannot run a: ValueError: two lines$"),
        ({"kind": "function", "function": "bad:leaves"}, "cannot run a: SystemExit: 3"),
        ({"kind": "function", "function": "bad:reads"}, "cannot run a: EOFError"),
        ({"kind": "function", "function": "bad:dies"}, "cannot run a: its process ended by itself, with 0"),
        ({"kind": "function", "function": "bad:hangs"}, "cannot run a: it has said nothing for 1 s"),
        ({"kind": "command", "command": "echo no >&2; exit 3"}, "ends with 3: no"),
        (
            {"kind": "pytest", "test": "bench.py::nothing"},
            "cannot run a: there is no such test or file$",
        ),
        ({"kind": "pytest", "test": "nothing.py::test_a"}, "cannot run a: there is no such test or file$"),
        ({"kind": "pytest", "test": "bad.py"}, "cannot run a: no test is in it$"),
        (
            {"kind": "pytest", "test": "slow/test_a.py"},
            "No module named 'of_nobody'; needs what the project's tests need",
        ),
    ],
)
def test_what_does_not_run_says_why(foreign, tmp_path, monkeypatch, workload, said):
    monkeypatch.setattr(launcher, "ANSWER_LIMIT_S", 1.0 if "hangs" in str(workload) else 60.0)
    (foreign / "bad.py").write_text(BAD)
    (foreign / "slow").mkdir()
    (foreign / "slow/test_a.py").touch()
    (foreign / "slow/conftest.py").write_text("import of_nobody\n")
    commit_all(foreign, "bad")
    built = sides(foreign, tmp_path)
    with pytest.raises(UnavailableError, match=said):
        ProcessLauncher({HEAD: built[HEAD]}, {"a": workload}).lacking()


def test_a_tree_is_built_by_the_project_s_command(foreign, tmp_path):
    """What it builds is measured, and what asks for the project's own version gets the tree's."""
    asks = "from importlib.metadata import version\nfrom pkg.built import X\n\n\ndef made():\n"
    asks += "    return lambda: (version('of-nobody'), X)[1]\n"
    (foreign / "bench.py").write_text(asks)
    own = '[project]\nname = "of-nobody"\nversion = "1.5"\n[tool.ptdp.gate]\nbuild = "echo X = 1 > src/pkg/built.py"\n'
    change(foreign, "pyproject.toml", f'{own}[tool.ptdp.gate.workloads]\nmade = "bench:made"\n')
    git(foreign, "tag", "--force", "first")
    project_of = project.read(foreign)
    with trees.built(foreign, {BASE: "first", HEAD: "HEAD"}, project_of.build) as built:
        assert ProcessLauncher(built, project_of.workloads).lacking() == {}
    with (
        pytest.raises(UnavailableError, match=r"base first .* does not build: build='echo no; false' ends with 1: no"),
        trees.built(foreign, {BASE: "first", HEAD: "HEAD"}, "echo no; false"),
    ):
        pass


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("ERROR: No matching distribution found for x", "ERROR: No matching distribution found for x"),
        (
            "meson.build:1:2: ERROR: Git command failed\n\nerror: metadata-generation-failed",
            "ERROR: Git command failed",
        ),
        ("configuration error: `license` must be valid\nDESCRIPTION:\nrequired: ['text']", "must be valid"),
        (
            "cc: fatal error: no input files\nnote: not a problem with pip.\nhint: See above for details.",
            "no input files",
        ),
        ("make: *** [all] 3", "[all] 3"),
    ],
    ids=["pip", "meson", "setuptools", "a compiler", "no error"],
)
def test_a_build_that_fails_says_its_error_and_not_what_is_printed_behind_it(foreign, said, why):
    command = f"cat >&2 <<'END'\n{said}\nEND\nfalse"
    with (
        pytest.raises(UnavailableError, match=rf"ends with 1: .*{re.escape(why)}$"),
        trees.built(foreign, {HEAD: "HEAD"}, command),
    ):
        pass


def test_allocations_alone_are_a_verdict_without_times(foreign, tmp_path):
    frees = PACKAGE.replace("square(i) for", "square(i) + 0 * square(len(bytes(4000))) for")
    keeps = PACKAGE.replace(
        "sum(square(i) for i in range(n))", "sum(map(square, range(n))) + 0 * len([bytes(9000) for i in range(n)])"
    )
    for package, code, said in ((frees, 0, "**ok**: head"), (keeps, 6, "16 KiB allocated at the peak 0 -> ")):
        change(foreign, "src/pkg/__init__.py", package)
        own = replace(project.of(foreign, ["made"]), counts="allocations")
        result = run.check(own, sides(foreign, tmp_path / str(code)), 1, 60.0, lambda text: None)
        assert (result.code, result.timed, result.session.rounds) == (code, False, 0)
        assert said in report.text(result)
        assert "calls" not in report.text(result)


def bash(script, folder, further):
    where = {**os.environ, "PYTHONPATH": str(ROOT), **further}
    return subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, env=where, capture_output=True, text=True, check=False
    )


def test_the_page_for_other_projects_runs_as_it_stands(tmp_path):
    """With shorter budgets, one trial, and a test in the toy for `pytest --gate`."""
    page = (ROOT / "docs/gate.md").read_text(encoding="utf-8")
    block, tests = (part.split("```")[0] for part in page.split("```sh\n")[1:])
    (trials,) = re.findall("^    (reproduce gate trials .*)$", page, re.MULTILINE)
    block = block.replace("git commit", "git -c user.name=a -c user.email=a@b.c commit").replace("20s", "4s")
    program = f'reproduce() {{ "{sys.executable}" -m ptdp "$@"; }}\npytest() {{ "{sys.executable}" -m pytest "$@"; }}\n'
    done = bash(program + block, tmp_path, {})
    assert done.returncode == 6, done.stderr  # a verdict whatever else the machine does
    assert "sums: 16 KiB allocated at the peak 0 -> " in done.stdout
    toy = tmp_path / "toy"
    assert git(toy, "status", "--short") == ""
    (toy / "test_toy.py").write_text("from toy import total\n\n\ndef test_total(benchmark):\n    benchmark(total, 9)\n")
    commit_all(toy, "third")
    commands = [line for line in tests.splitlines() if line]
    assert [line.split()[0] for line in commands] == ["pytest", "reproduce"]
    for line in commands:
        budget = "--gate-budget 2s -p no:xdist" if line.startswith("pytest") else f"--budget 2s --results {tmp_path}"
        done = bash(f"{program}{line} {budget}", toy, {})
        assert done.returncode in (0, 7, 9), done.stdout + done.stderr
        assert "not compared: base HEAD~1" in done.stdout  # which has no tests yet
    done = bash(f"{program}{trials} --runs 1 --budget 2s --results {tmp_path}", toy, {})
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "gate_trials/measured/badge.json").exists()


def test_the_reusable_workflow_hands_every_input_to_the_action():
    action = (ROOT / "action.yml").read_text(encoding="utf-8").partition("outputs:")[0]
    workflow = (ROOT / ".github/workflows/project-gate.yml").read_text(encoding="utf-8")
    inputs = re.findall(r"^  (\w+):$", action, re.MULTILINE)
    assert "base" in inputs
    assert inputs == re.findall(r"^      (\w+):$", workflow.partition("    outputs:")[0], re.MULTILINE)
    assert inputs == re.findall(r"^          (\w+): \$\{\{ inputs\.\1\b", workflow, re.MULTILINE)


def test_the_action_s_step_writes_verdict_and_summary(foreign, tmp_path):
    change(foreign, "src/pkg/__init__.py", PACKAGE.replace("i * i", "int(i) * i"))
    script = dedent((ROOT / "action.yml").read_text(encoding="utf-8").rpartition("run: |\n")[2])
    (tmp_path / "ptdp-gate/bin").mkdir(parents=True)
    command = tmp_path / "ptdp-gate/bin/reproduce"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ptdp "$@"\n')
    command.chmod(0o755)
    asked = {
        "BASE": "first",
        "PROJECT": str(foreign),
        "BUDGET": "4s",
        "INCONCLUSIVE": "pass",
        "RUNNER_TEMP": str(tmp_path),
    }
    files = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "GITHUB_OUTPUT": str(tmp_path / "output")}
    done = bash(script, tmp_path, {**asked, **files, "RUNNER_TEMP": str(tmp_path)})
    assert done.returncode in (0, 9), (tmp_path / "summary.md").read_text() + done.stderr
    assert "verdict=" in (tmp_path / "output").read_text()
    assert "counts of a step" in (tmp_path / "summary.md").read_text()
    assert git(foreign, "status", "--short") == ""
