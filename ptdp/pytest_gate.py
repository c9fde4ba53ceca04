"""A plugin of pytest, off unless asked: `pytest --gate --base REF` compares tests with a `benchmark` fixture with base.

Each such test is a workload of the timing gate (`reproduce gate`, docs/gate.md): what it gives to its `benchmark`
fixture, as pytest-benchmark and pytest-codspeed define it, is run on base and on head, in turn. A test fails if head
is slower or does more, is skipped if that could not be told or base has no such test, and passes otherwise. Other
tests run as always.
"""

import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ptdp import find_packages

if TYPE_CHECKING:
    from benchmarks.gate.project import Project
    from benchmarks.gate.run import CheckResult, ExactFinding

FIXTURE = "benchmark"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the gate."""
    group = parser.getgroup("gate", "performance gate (ptdp)")
    group.addoption("--gate", action="store_true", help="compare tests with a benchmark fixture with those of --base")
    group.addoption("--base", metavar="REF", default="", help="the commit to compare with, such as origin/main")
    group.addoption(
        "--gate-budget", metavar="TIME", default="10m", help="such as 90s or 10m (default), for all of them"
    )
    group.addoption("--gate-json", metavar="FILE", help="write verdicts and times to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Without --gate the rest of this module does nothing."""
    if config.getoption("--gate"):
        if not config.getoption("--base"):
            raise pytest.UsageError("--gate compares with a commit; needs --base REF, such as --base origin/main")
        config.pluginmanager.register(Gate(config), "ptdp-gate-session")


class Gate:
    """The gate of one session of pytest."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.tests: list[str] = []
        self.comparison: tuple[ExactFinding, CheckResult] | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Take the tests that have the fixture; they are not run as others are."""
        for place, item in enumerate(items):
            if FIXTURE in getattr(item, "fixturenames", ()):
                assert item.parent
                self.tests.append(item.nodeid)
                items[place] = GateItem.from_parent(item.parent, name=item.name, gate=self)

    def compared(self) -> "tuple[ExactFinding, CheckResult]":
        """Counts and times; the gate measures all tests together, when the first of them is asked for."""
        if self.comparison is None:
            find_packages()
            from benchmarks.gate import project
            from reproduce.commands.gate import budget
            from results.records.errors import ReproduceError

            try:
                seconds = budget(self.config.getoption("--gate-budget"))
                self.comparison = self._compare(project.tests(self.config.rootpath, self.tests), seconds)
            except ReproduceError as error:
                pytest.exit(str(error), returncode=error.code)
        return self.comparison

    def _compare(self, measured: "Project", seconds: float) -> "tuple[ExactFinding, CheckResult]":
        """Measure in these seconds. Other than `reproduce gate` it takes times after more work, too: other tests'."""
        from benchmarks.gate import run, trees

        trees.require_linux()
        started, base = time.monotonic(), self.config.getoption("--base")
        trees.require_different(measured.folder, measured.sources, base, None)
        with trees.built(measured.folder, {trees.BASE: base, trees.HEAD: "HEAD"}) as sides:
            benchmarks, seed = run.select(measured, ()), random.SystemRandom().randrange(2**31)
            exact = run.exact(measured, sides, benchmarks)
            return exact, run.check(sides, benchmarks, seed, seconds, lambda text: None, started, exact.lacking)

    def found(self, test: str) -> tuple[str, bool, bool]:
        """What was found of a test: in words, whether it failed, and whether anything could be told."""
        from benchmarks.gate.procedure import INCONCLUSIVE, REGRESSED

        exact, result = self.compared()
        if test in result.lacking:
            return f"not compared: {result.lacking[test]}", False, False
        finding = next(finding for finding in result.findings if finding.name == test)
        grown = [str(change) for change in exact.changes.get(test, ()) if change.grown]
        slower = f"{finding.slowdown:+.1%}" if finding.rounds else "not measured"
        lines = [f"{finding.verdict}: {slower}{f', {finding.reason}' if finding.reason else ''}", *grown]
        return "\n".join(lines), bool(grown) or finding.verdict == REGRESSED, finding.verdict != INCONCLUSIVE

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The verdict lines."""
        if self.comparison:
            from benchmarks.gate import report

            terminalreporter.section("performance gate")
            exact, result = self.comparison
            for text in (report.headline(result), report.body(result), exact.text):
                terminalreporter.write_line(text)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file that --gate-json names, and end with the gate's exit code if only the gate has something."""
        if self.comparison is None:
            return
        from benchmarks.gate import report
        from results.records.errors import REGRESSED

        exact, result = self.comparison
        if file := self.config.getoption("--gate-json"):
            document = report.document(result) | {
                "counts": {name: list(map(str, changes)) for name, changes in exact.changes.items()}
            }
            Path(file).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        usual = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if usual and not self._others_failed():
            session.exitstatus = REGRESSED if exact.failed else result.code

    def _others_failed(self) -> bool:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        failed = reporter.stats.get("failed", []) if reporter else []
        return any(report.nodeid not in self.tests for report in failed)


class GateItem(pytest.Item):
    """A test with a `benchmark` fixture, which passes unless head is slower or does more."""

    def __init__(self, *, gate: Gate, **options: Any) -> None:
        super().__init__(**options)
        self.gate = gate

    def runtest(self) -> None:
        """Fail, skip or pass by the gate's verdict."""
        text, failed, decided = self.gate.found(self.nodeid)
        if failed:
            pytest.fail(text, pytrace=False)
        if not decided:
            pytest.skip(text)
        self.add_report_section("call", "gate", text)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the test stands."""
        return self.path, None, self.name
