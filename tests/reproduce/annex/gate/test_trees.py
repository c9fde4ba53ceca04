"""Commits as folders, and the processes that run in them."""

import multiprocessing
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gated.rank_steps import step_of
from benchmarks.gated.workloads import WORKLOADS
from reproduce.annex.gate import launcher as launchers
from reproduce.annex.gate import trees
from reproduce.annex.gate.launcher import ProcessLauncher
from reproduce.annex.gate.trees import BASE, HEAD
from results.records.errors import UnavailableError, UsageError
from tests.reproduce.annex.gate.conftest import git

SIMULATOR = {"simulator": WORKLOADS["simulator"]}


@pytest.fixture
def built(repository, tmp_path):
    return build(repository, tmp_path, "first", "HEAD")


def build(repository, tmp_path, base, head):
    return trees.build(repository, {BASE: base, HEAD: head}, tmp_path / "trees")


def test_a_tree_holds_its_commit_and_the_repository_stays_as_it_is(repository, commit, tmp_path):
    head = commit("ptdp_core/new.py", "x = 1\n")
    built = build(repository, tmp_path, "first", "main")
    assert (built[HEAD].commit, built[HEAD].folder.name) == (head, HEAD)
    assert [(built[side].folder / "ptdp_core/new.py").exists() for side in (BASE, HEAD)] == [False, True]
    assert [built[side].python for side in (BASE, HEAD)] == [Path(sys.executable)] * 2
    assert git(repository, "worktree", "list").count("\n") == 0
    assert git(repository, "status", "--porcelain") == ""


def test_a_tree_holds_what_archives_leave_out(repository, commit, tmp_path):
    commit(".gitattributes", "kernels export-ignore\n")
    assert (build(repository, tmp_path, "first", "HEAD")[HEAD].folder / "kernels").is_dir()


def test_a_part_of_a_repository_is_a_project_which_an_older_base_may_lack(repository, commit, tmp_path):
    (repository / "part").mkdir()
    commit("part/bench.py", "def step():\n    pass\n")
    built = build(repository / "part", tmp_path, "first", "HEAD")
    (why,) = ProcessLauncher(built, {"a": {"kind": "function", "function": "bench:step"}}).lacking().values()
    assert "base first" in why
    assert "No module named 'bench'" in why


@pytest.mark.parametrize("ref", ["nope", "--help", "first:pyproject.toml", ""])
def test_a_ref_that_is_no_commit(repository, ref):
    with pytest.raises(UsageError, match="names no commit here"):
        trees.resolve(repository, ref)


def test_a_shallow_clone_is_named_with_the_cure(repository, commit, tmp_path):
    commit("ptdp_core/new.py", "x = 1\n")
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{repository}", "shallow")
    with pytest.raises(UsageError, match="try git fetch --unshallow, as this clone is shallow"):
        trees.resolve(tmp_path / "shallow", "HEAD~1")


def test_a_folder_that_is_no_checkout(tmp_path):
    with pytest.raises(UnavailableError, match="is not a git checkout"):
        trees.resolve(tmp_path, "HEAD")


@pytest.mark.parametrize("name", ["ptdp_core/errors.py", "ptdp_core/new.py"], ids=["changed", "untracked"])
def test_a_dirty_tree_is_refused(repository, name):
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "second")
    trees.require_different(repository, ["."], "first", None)
    with open(repository / name, "a") as file:
        file.write("\n")
    with pytest.raises(UsageError, match="try git commit, or --head HEAD"):
        trees.require_different(repository, ["."], "first", None)
    trees.require_different(repository, ["kernels"], "first", None)
    trees.require_different(repository, ["."], "first", "HEAD")


@pytest.mark.parametrize("text", ["[project", "project = 3\n"])
def test_a_base_whose_pyproject_cannot_be_used_does_not_build(repository, commit, tmp_path, text):
    commit("pyproject.toml", text)
    with pytest.raises(UnavailableError, match=r"^base HEAD .* does not build: its pyproject.toml"):
        build(repository, tmp_path, "HEAD", "first")


def test_different_dependencies_need_environments_of_their_own(repository, commit, tmp_path, monkeypatch):
    commit("pyproject.toml", '[project]\nname = "x"\ndependencies = ["this is no requirement"]\n')
    commands = []

    def run(command, **options):
        if command[0] == "git":
            return real(command, **options)
        commands.append(command)
        failed = "this is no requirement" in command
        return subprocess.CompletedProcess(command, failed, b"", b"trying\nERROR: Invalid requirement\n\n")

    real = subprocess.run
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(UnavailableError, match=r"head HEAD does not build: .* ERROR: Invalid requirement$"):
        build(repository, tmp_path, "first", "HEAD")
    assert [command[1:3] for command in commands if "venv" in command] == [["-m", "venv"]] * 2
    assert commands[1][-1] == "numpy>=1"


def test_both_sides_measure_in_turn(built):
    launcher = ProcessLauncher(built, SIMULATOR)
    assert launcher.lacking() == {}
    launcher.start(["simulator"])
    try:
        slices = [launcher.run(side, "simulator") for side in (HEAD, BASE, HEAD)]
    finally:
        launcher.stop()
    assert all(seconds > 0 for seconds in slices)


def test_what_a_tree_lacks_is_said(repository, commit, tmp_path):
    git(repository, "rm", "-r", "--quiet", "ptdp_core/simulator")
    commit("README.md", "no simulator\n")
    launcher = ProcessLauncher(build(repository, tmp_path, "HEAD", "first"), SIMULATOR)
    assert list(launcher.lacking()) == ["simulator"]
    assert "base HEAD" in launcher.lacking()["simulator"]
    assert "No module named 'ptdp_core.simulator'" in launcher.lacking()["simulator"]


@pytest.mark.parametrize(
    ("text", "message"), [("def broken(:\n", "SyntaxError"), ("import surely_not_installed\n", "surely_not_installed")]
)
def test_why_a_base_does_not_run_is_said(repository, commit, tmp_path, text, message):
    commit("ptdp_core/config/__init__.py", text)
    launcher = ProcessLauncher(build(repository, tmp_path, "HEAD", "first"), SIMULATOR)
    (why,) = launcher.lacking().values()
    assert why.startswith("base HEAD (")
    assert message in why


def test_packages_from_elsewhere_are_refused(built, tmp_path, monkeypatch):
    """As if something put another checkout first on the path."""
    (tmp_path / "elsewhere/ptdp_core").mkdir(parents=True)
    (tmp_path / "elsewhere/ptdp_core/__init__.py").touch()
    monkeypatch.setattr(launchers, "_environment", lambda tree: {"PYTHONPATH": str(built[BASE].folder)})
    elsewhere = replace(built[HEAD], folder=tmp_path / "elsewhere")
    with pytest.raises(UnavailableError, match="was imported from"):
        ProcessLauncher({HEAD: elsewhere}, SIMULATOR).lacking()


TRAINER = "ptdp_core/engine/trainer.py"
HARNESS = "benchmarks/harness/training.py"  # which the adapter builds the engine with


@pytest.fixture
def new_interface(repository, commit):
    """A commit whose `Trainer` wants one more argument, which nothing gives it yet."""
    source, old = (repository / TRAINER).read_text(), "def __init__(self, settings: Settings, groups: Groups"
    assert source.count(old) == 1
    return commit(TRAINER, source.replace(old, old.replace("self, ", "self, run: str, ")))


@pytest.mark.slow
def test_what_a_side_cannot_run_is_said_with_its_rank_s_own_error(repository, new_interface, tmp_path):
    built = build(repository, tmp_path, "HEAD", "first")
    why = ProcessLauncher({BASE: built[BASE]}, {"a": WORKLOADS["pipeline_step"]}).lacking()["a"]
    assert "cannot run it: RuntimeError: rank " in why
    assert "TypeError: Trainer.__init__() missing 1 required positional argument: " in why


def test_what_head_cannot_run_fails_and_what_base_cannot_run_does_not(built, monkeypatch):
    broken = {(BASE, "a"): "older", (HEAD, "b"): "TypeError: no"}
    tried = dict.fromkeys("ab", WORKLOADS["simulator"])

    def ask(self, tree, name, workload):
        if why := broken.get((tree.side, name)):
            raise UnavailableError(f"{tree} does not run: {why}")
        return {name: ""}

    monkeypatch.setattr(ProcessLauncher, "_ask", ask)
    with pytest.raises(UnavailableError, match=r"^head HEAD .* cannot run b: TypeError: no"):
        ProcessLauncher(built, tried).lacking()
    del broken[HEAD, "b"]
    assert ProcessLauncher(built, tried).lacking() == {"a": f"{built[BASE]} cannot run it: older"}


@pytest.mark.slow
def test_each_side_measures_through_its_own_interface(repository, new_interface, commit, tmp_path):
    """Base's `Trainer` takes other arguments than head's, and both are measured."""
    harness = (repository / HARNESS).read_text()
    commit(HARNESS, harness.replace("Trainer(Settings(", "Trainer('run', Settings("))
    built = build(repository, tmp_path, "first", "HEAD")
    launcher = ProcessLauncher(built, {"a": WORKLOADS["pipeline_step"]}, slowdown=0.15)
    launcher.start(["a"])
    try:
        assert all(launcher.run(side, "a") > 0 for side in (HEAD, BASE, HEAD))
    finally:
        launcher.stop()


class Rank:
    """The other end of a rank's pipe: after `waits` it answers, or ends if it has no answer."""

    def __init__(self, *answer, waits=None):
        self.pipe, theirs = multiprocessing.Pipe()
        self.answered = threading.Event()

        def serve():
            theirs.recv()
            if waits:
                waits.wait()
            self.answered.set()
            theirs.send(*answer) if answer else theirs.close()

        threading.Thread(target=serve, daemon=True).start()


def test_a_step_ends_with_its_slowest_rank_and_says_which_one_fails():
    quick = Rank(None)
    slow = Rank(None, waits=quick.answered)
    step_of([slow.pipe, quick.pipe])
    assert slow.answered.is_set()
    for failing, said in ((Rank("TypeError: no"), "TypeError: no"), (Rank(), "it ended without a word")):
        hangs = Rank(None, waits=threading.Event())
        with pytest.raises(RuntimeError, match=f"^rank 1: {said}$"):
            step_of([hangs.pipe, failing.pipe])


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_is_measured(built, name):
    launcher = ProcessLauncher({HEAD: built[HEAD]}, {"a": WORKLOADS[name]}, slowdown=0.15)
    launcher.start(["a"])
    try:
        assert all(launcher.run(HEAD, "a") > 0 for _ in range(2))
    finally:
        launcher.stop()
