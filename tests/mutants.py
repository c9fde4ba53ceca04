"""Mutation testing: do the tests of a package fail when one line of the package is wrong?

    python tests/mutants.py NAME ... [--again]      (needs cosmic-ray: pip install 'ptdp[mutants]')

For each package NAME of `mutants.toml`, Cosmic Ray puts small changes (another operator or number, a condition negated,
a loop that is not entered), one at a time, into a copy of the project, where the package's tests run. A change that no
test notices has survived: it is equivalent to the original, does not matter, or is a hole in the tests. The changes are
a sample with a fixed seed. Results are kept in `build/mutants`, so that the same command goes on where it was stopped,
as long as the package's sources are the same; `--again` reruns the survivors, against tests that may be new.

Regressions chosen by hand, which exact checks have to name, are another thing: `reproduce/annex/exact/mutations.py`.
"""

import argparse
import ast
import compileall
import hashlib
import importlib
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

import pytest
from cosmic_ray.commands.init import init
from cosmic_ray.modules import filter_paths, find_modules
from cosmic_ray.mutating import mutate_code, use_mutation
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkItem, WorkResult

PROJECT = Path(__file__).parents[1]
SETTINGS = Path(__file__).with_suffix(".toml")
SESSIONS = PROJECT / "build" / "mutants"
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "runs", "*.egg-info")
PYTEST = ("-x", "-q", "--assert=plain", "--hypothesis-seed=0", *("-p", "no:cacheprovider", "-p", "no:xdist"))
# What tests import that is slow to import and never changed: a run of the tests is a fork of this process.
PRELOADED = ("hypothesis", "torch", "numpy", "scipy.stats", "pandas", "jsonschema", "rich.console")
SLOWER = 5  # a run that takes so many times as long as without a change, and 10 s, counts as endless
# Cosmic Ray's operators that are not used: `is` in place of a comparison is the same for small numbers and short texts.
NOT_USED = re.compile(r"RemoveDecorator|ComparisonOperator_(?!Is)\w+_Is(Not)?$")
Position = tuple[int, int]  # line, from 1, and column, from 0


def unmutated(source: str) -> list[tuple[Position, Position]]:
    """Stretches of a source, from and to, where a change alters only texts, types, decorators or a `strict`."""
    left_out: list[ast.AST | None] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise | ast.JoinedStr):
            left_out.append(node)
        elif isinstance(node, ast.arg | ast.AnnAssign):
            left_out.append(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            left_out += [node.returns, *node.decorator_list]
        elif isinstance(node, ast.ClassDef):
            left_out += node.decorator_list
        elif isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: says what is so
            left_out.append(node.value)
    return [
        ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        for node in left_out
        if node is not None
    ]


def sample(modules: list[Path], size: int, seed: int) -> tuple[list[WorkItem], int]:
    """At most `size` mutants, each at a place of its own, and the number of places that they were drawn from.

    Places are drawn with equal probability, then a mutant of those that Cosmic Ray makes there: it makes 11 of a `+`,
    but one of an `if`. A mutant that is not valid Python is not drawn.
    """
    with use_db(":memory:") as every:
        init(modules, every, {})
        items = every.work_items
    sources = {path: path.read_text(encoding="utf-8") for path in modules}
    skipped = {path: unmutated(source) for path, source in sources.items()}
    places: defaultdict[tuple[Path, Position], list[WorkItem]] = defaultdict(list)
    for item in items:
        (mutation,) = item.mutations
        if not NOT_USED.search(mutation.operator_name) and not any(
            a <= mutation.start_pos < b for a, b in skipped[mutation.module_path]
        ):
            places[mutation.module_path, mutation.start_pos].append(item)
    rng, drawn = random.Random(seed), []
    for place in rng.sample(sorted(places), len(places)):
        mutants = sorted(places[place], key=lambda item: _order(item.mutations[0]))
        for item in rng.sample(mutants, len(mutants)):
            if _is_valid(item.mutations[0], sources[place[0]]):
                drawn.append(item)
                break
        if len(drawn) == size:
            break
    return drawn, len(places)


def _order(mutation: MutationSpec) -> tuple[str, int]:
    return mutation.operator_name, mutation.occurrence


def _is_valid(mutation: MutationSpec, source: str) -> bool:
    """Whether the mutant compiles, and differs from the source."""
    mutated = mutate_code(source, get_operator(mutation.operator_name)(), mutation.occurrence)
    try:
        compile(mutated, str(mutation.module_path), "exec")
    except SyntaxError:
        return False
    return ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(source))


def passed(tests: list[str], limit_s: float | None = None) -> bool | None:
    """Whether the tests pass in the current folder; None if they run longer than the limit."""
    process = multiprocessing.get_context("fork").Process(target=_run, args=(tests,))
    process.start()
    process.join(limit_s)
    if process.exitcode is None:
        assert process.pid is not None
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
        return None
    return process.exitcode == 0


def _run(tests: list[str]) -> None:
    os.setsid()  # what the tests have started ends with them
    sys.path[0] = os.getcwd()
    with Path("pytest.log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.exit(pytest.main([*PYTEST, *tests]))


def run_mutant(item: WorkItem, tests: list[str], limit_s: float) -> WorkResult:
    """The result of a mutant; its `diff` says what is changed: 'a/b.py:12 in f: x < y -> x <= y'."""
    (mutation,) = item.mutations
    with use_mutation(mutation.module_path, get_operator(mutation.operator_name)(), mutation.occurrence) as codes:
        before, after = (code.splitlines() for code in codes)
        changed = next(f"{a.strip()} -> {b.strip()}" for a, b in zip(before, after, strict=False) if a != b)
        place = f"{mutation.module_path}:{mutation.start_pos[0]} in {mutation.definition_name or 'the module'}"
        verdict = passed(tests, limit_s)
    outcome = TestOutcome.SURVIVED if verdict else TestOutcome.KILLED
    return WorkResult(WorkerOutcome.NORMAL, "timeout" if verdict is None else "", outcome, f"{place}: {changed}")


def outcome(result: WorkResult) -> str:
    """'killed', 'survived', or 'timeout' for one that was killed since the tests did not end."""
    assert result.test_outcome is not None
    return result.output or str(result.test_outcome.value)


def run_mutants(name: str, package: dict[str, Any], size: int, seed: int, again: bool) -> None:
    """Run the mutants of a package that have no result yet (or survived), in the copy of the project that we are in."""
    modules = sorted(filter_paths(find_modules(map(Path, package["modules"])), package.get("left-out", [])))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in modules)).hexdigest()[:8]
    start = time.monotonic()
    if not passed(package["tests"]):
        log = Path("pytest.log").read_text()
        sys.exit(f"{name}: the tests fail without any change; needs tests that pass in a copy of the project:\n{log}")
    seconds = time.monotonic() - start
    print(f"{name}: the tests take {seconds:.1f} s: pytest {' '.join(package['tests'])}", flush=True)
    with use_db(SESSIONS / f"{name}-{digest}.sqlite", WorkDB.Mode.create) as session:
        if not session.num_work_items:
            drawn, places = sample(modules, size, seed)
            session.add_work_items(drawn)
            print(f"{name}: {len(drawn)} of {places} places drawn with seed {seed}", flush=True)
        for item in list(_survivors(session)) if again else session.pending_work_items:
            result = run_mutant(item, package["tests"], 10 + SLOWER * seconds)
            session.set_result(item.job_id, result)
            print(f"  {outcome(result):9} {result.diff}", flush=True)
        results = dict(session.results)
        counts = Counter(map(outcome, results.values()))
        print(f"{name}: " + ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items())))
        print(*(f"  survived  {results[item.job_id].diff}" for item in _survivors(session)), sep="\n")


def _survivors(session: WorkDB) -> Iterator[WorkItem]:
    return (item for item, result in session.completed_work_items if result.test_outcome == TestOutcome.SURVIVED)


def main() -> None:
    """Test the packages named on the command line."""
    settings = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description="Do the tests of a package fail when one line of it is wrong?")
    packages = settings["package"]
    parser.add_argument("names", nargs="+", choices=packages, metavar="NAME", help=", ".join(packages))
    parser.add_argument("--again", action="store_true", help="rerun the mutants that survived")
    arguments = parser.parse_args()
    SESSIONS.mkdir(parents=True, exist_ok=True)
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "mutants"  # any text will do, but tests/conftest.py takes back a "1"
    for module in PRELOADED:
        importlib.import_module(module)
    for name in arguments.names:
        with tempfile.TemporaryDirectory(prefix="ptdp-mutants-") as folder:
            shutil.copytree(PROJECT, folder, ignore=LEFT_OUT, dirs_exist_ok=True)
            os.chdir(folder)
            os.environ["PYTHONPATH"] = folder  # for the programs that tests start
            # A compiled file counts only for the source that it was made from, however fast this one changes.
            compileall.compile_dir(folder, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
            run_mutants(name, packages[name], settings["sample"], settings["seed"], arguments.again)
            os.chdir(PROJECT)


if __name__ == "__main__":
    main()
