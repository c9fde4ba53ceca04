"""A plugin of pytest, off unless asked: `pytest --gate --base REF` compares tests with a `benchmark` fixture with base.

Each such test is a workload of the timing gate (`reproduce gate`, docs/gate.md): what it gives to its `benchmark`
fixture, as pytest-benchmark and pytest-codspeed define it, is run on base and on head, in turn. A test fails if head
is slower or does more, is skipped if that could not be told or base has no such test, and passes otherwise. Other
tests run as always.
"""

import json
import subprocess
import sys
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

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
        config.option.dist = "no"  # of pytest-xdist, whose workers would disturb each other
        config.pluginmanager.register(Gate(config), "ptdp-gate-session")


class Gate:
    """The gate of one session of pytest: `reproduce gate` in a process of its own, so that nothing is imported here."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.tests: list[str] = []
        self.failed = 0  # of these

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Take the tests that have the fixture; they are not run as others are."""
        for place, item in enumerate(items):
            if FIXTURE in getattr(item, "fixturenames", ()):
                assert item.parent
                self.tests.append(item.nodeid)
                items[place] = GateItem.from_parent(item.parent, name=item.name, gate=self)

    @cached_property
    def comparison(self) -> tuple[dict[str, Any], str]:
        """The document and the text of `reproduce gate` on all tests, started when the first of them is asked for."""
        with tempfile.TemporaryDirectory() as folder:
            summary = Path(folder, "summary.md")
            command = [sys.executable, "-P", "-m", "ptdp", "gate", "--json", "--keep-going", f"--summary={summary}"]
            command += [f"--project={self.config.rootpath}", f"--base={self.config.getoption('--base')}"]
            command += [f"--budget={self.config.getoption('--gate-budget')}", f"--results={folder}"]
            command += [f"--benchmark={test}" for test in self.tests]
            # Other than `run`, this does not kill the gate at Ctrl-C before it has removed what it made.
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                printed, said = process.communicate()
            if not printed:
                pytest.exit(said.strip().removeprefix("reproduce: "), returncode=process.returncode)
            document = json.loads(printed)
            document.pop("record", None)  # of times, which are not always taken
            return document, summary.read_text(encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The verdict lines."""
        if "comparison" in vars(self):
            terminalreporter.section("performance gate")
            terminalreporter.write_line(self.comparison[1].rstrip())

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file that --gate-json names, and end with the gate's exit code if only the gate has something."""
        if "comparison" not in vars(self):
            return
        document = self.comparison[0]
        if file := self.config.getoption("--gate-json"):
            counts = {name: list(map(_line, changes)) for name, changes in document["exact"]["changes"].items()}
            Path(file).write_text(json.dumps(document | {"counts": counts}, indent=1) + "\n", encoding="utf-8")
        usual = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if usual and session.testsfailed == self.failed:
            session.exitstatus = document["exit_code"]


class GateItem(pytest.Item):
    """A test with a `benchmark` fixture, which passes unless head is slower or does more."""

    def __init__(self, *, gate: Gate, **options: Any) -> None:
        super().__init__(**options)
        self.gate = gate

    def runtest(self) -> None:
        """Fail, skip or pass by the gate's verdict."""
        document = self.gate.comparison[0]
        if why := document["not_measured"].get(self.nodeid):
            pytest.skip(f"not compared: {why}")
        untimed = {"verdict": "ok", "slowdown": None, "reason": None}
        found = next((entry for entry in document["benchmarks"] if entry["name"] == self.nodeid), untimed)
        changes = document["exact"]["changes"].get(self.nodeid, [])
        grown = [change for change in changes if change["head"] > change["base"]]
        more = [_line(change) for change in grown if change["fails"]]
        notes = [f"note: {_line(change)}" for change in grown if not change["fails"]]
        slower = "not measured" if found["slowdown"] is None else f"{found['slowdown']:+.1%}"
        reason = f", {found['reason'].replace('--budget', '--gate-budget')}" if found["reason"] else ""
        times = f"{found['verdict']}: {slower}{reason}"
        # The first line is what pytest's summary shows: of what failed, the reason.
        text = "\n".join([f"{more[0]}: more than on base", *more[1:], f"times {times}"] if more else [times, *notes])
        if more or found["verdict"] == "regressed":
            self.gate.failed += 1
            pytest.fail(text, pytrace=False)
        if found["verdict"] == "inconclusive":
            pytest.skip(text)
        self.add_report_section("call", "gate", text)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the test stands."""
        return self.path, None, self.name


def _line(change: dict[str, Any]) -> str:
    return f"{change['what']} {change['base']} -> {change['head']}"
