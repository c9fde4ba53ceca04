"""A plugin of pytest, off unless asked: `pytest --gate --base REF` compares tests with a `benchmark` fixture with base.

Each such test is a workload of the timing gate (`reproduce gate`, docs/gate.md): what it gives to its `benchmark`
fixture, as pytest-benchmark and pytest-codspeed define it, is run on base and on head, in turn. A test fails if head
is slower or does more, is skipped if that could not be told or base has no such test, and passes otherwise. Other
tests run as always.
"""

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ptdp import find_packages

if TYPE_CHECKING:
    from benchmarks.gate.run import Comparison

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
        self.comparison: Comparison | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Take the tests that have the fixture; they are not run as others are."""
        for place, item in enumerate(items):
            if FIXTURE in getattr(item, "fixturenames", ()):
                assert item.parent
                self.tests.append(item.nodeid)
                items[place] = Compared.from_parent(item.parent, name=item.name, gate=self)

    def compared(self) -> "Comparison":
        """What the gate found; it measures all tests together, when the first of them is asked for."""
        if self.comparison is None:
            find_packages()
            from benchmarks.gate import project, run
            from reproduce.commands.gate import budget
            from results.records.errors import ReproduceError

            measured = project.tests(self.config.rootpath, {test: test for test in self.tests})
            seed, seconds = random.SystemRandom().randrange(2**31), budget(self.config.getoption("--gate-budget"))
            try:
                self.comparison = run.compare(measured, self.config.getoption("--base"), seed, seconds)
            except ReproduceError as error:
                pytest.exit(str(error), returncode=error.code)
        return self.comparison

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The verdict lines."""
        if self.comparison:
            from benchmarks.gate import report

            terminalreporter.section("performance gate")
            terminalreporter.write_line(report.headline(self.comparison.result))
            terminalreporter.write_line(report.body(self.comparison.result))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file that --gate-json names, and end with the gate's exit code if only the gate has something."""
        if self.comparison is None:
            return
        from benchmarks.gate import report

        if file := self.config.getoption("--gate-json"):
            document = report.document(self.comparison.result) | {"counts": self.comparison.told}
            Path(file).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        usual = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if usual and not self._others_failed():
            session.exitstatus = self.comparison.code

    def _others_failed(self) -> bool:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        failed = reporter.stats.get("failed", []) if reporter else []
        return any(report.nodeid not in self.tests for report in failed)


class Compared(pytest.Item):
    """A test with a `benchmark` fixture, which passes unless head is slower or does more."""

    def __init__(self, *, gate: Gate, **options: Any) -> None:
        super().__init__(**options)
        self.gate = gate

    def runtest(self) -> None:
        """Fail, skip or pass by the gate's verdict."""
        found = self.gate.compared().of(self.nodeid)
        if found.failed:
            pytest.fail(found.text, pytrace=False)
        if not found.decided:
            pytest.skip(found.text)
        self.add_report_section("call", "gate", found.text)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the test stands."""
        return self.path, None, self.name
