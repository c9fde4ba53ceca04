"""Section `artifacts`: what the files beside each artifact's record take to be made, and what an unchanged run takes.

Tables and figures are made from the reference records, without simulating, each in a fork of one process: how often
figures are laid out, drawn and saved and fonts reduced, what is imported, and how large record and tables are.
One artifact is run twice, in which judging and writing are counted, too: an unchanged run does none of it.
"""

import tempfile
from typing import Any

from reproduce.annex.exact import probes
from reproduce.annex.exact.entries import Entry, Section, tables
from results import ROOT

RUN_TWICE = "fig_interleaved"
# The unit of the size of record and tables, 16 KiB: in bytes every other label would be a difference.
UNIT = 1 << 14
PROBE = (
    probes.FORKING
    + """
import collections, importlib
from pathlib import Path
asked = json.loads(sys.argv[1])
from reproduce.cli import main
from reproduce.experiment import catalog
from reproduce.output import export
from results.records import read_record
def counting(functions):
    counts = collections.Counter()
    def count(function, what):
        def counted(*arguments, **options):
            counts[what] += 1
            return function(*arguments, **options)
        return counted
    for module, name, what in functions:
        *owner, last = name.split(".")
        place = importlib.import_module(module)
        for part in owner:
            place = getattr(place, part)
        setattr(place, last, count(getattr(place, last), what))
    return counts
def files_of(artifact, record):
    before = set(sys.modules)
    counts = counting(asked["figures"]) if artifact.draw else {}
    files = export.contents(artifact, record)
    texts = [data for name, data in files.items() if not name.endswith((".pdf", ".png"))]
    return counts, sorted(set(sys.modules) - before), sum(map(len, texts))
def runs():
    counts = counting(asked["runs"])
    for _ in range(2):
        counts.clear()
        code = main(asked["command"])
        yield dict(counts), code
artifacts = {}
for artifact in sorted(map(catalog.load, catalog.ids()), key=lambda artifact: artifact.draw is not None):
    path = Path(asked["reference"]) / artifact.id / artifact.fidelities[0] / "record.json"
    if artifact.draw:
        import matplotlib.figure
    if path.exists():
        *made, size = in_fork(files_of, artifact.at(artifact.scales[0]), read_record(path))
        artifacts[artifact.id] = [*made, size + path.stat().st_size]
print(json.dumps([artifacts, in_fork(lambda: list(runs()))]))
"""
)


def collect() -> Section:
    """Make the files of every artifact that has a reference record, run one twice, and return what that took."""
    with tempfile.TemporaryDirectory(prefix="ptdp-") as results:
        counted = tables("artifacts")
        asked = {
            "figures": counted["figures"],
            "runs": [*counted["figures"], *counted["runs"]],
            "reference": str(ROOT / "results" / "reference"),
            "command": [RUN_TWICE, "-q", "--results", results],
        }
        return probes.ask("files of artifacts", PROBE, asked, _section)


def _section(printed: Any) -> Section:
    artifacts, (first, again) = printed
    section = {id: _of_files(*artifacts[id]) for id in sorted(artifacts)}
    for name, (done, code) in (("first", first), ("unchanged", again)):
        quantities = {"parameters": {"exit code": code}, "calls": _done(done)}
        section[f"reproduce {RUN_TWICE}, {name}"] = Entry(quantities)
    return section


def _of_files(done: dict[str, int], modules: list[str], size: int) -> Entry:
    """What the files of an artifact took: calls, imports, and the units of their size."""
    quantities: dict[str, Any] = {
        "imports": {"packages": probes.packages(modules), "modules": probes.ours(modules)},
        "memory": {"record and tables in units of 16 KiB, rounded up": -(-size // UNIT)},
        "calls": _done(done),
    }
    return Entry(quantities)


def _done(done: dict[str, int]) -> dict[str, Any]:
    """Counts as one text, such as '2 drawn, 1 laid out'."""
    return {"what it does": ", ".join(f"{count} {what}" for what, count in sorted(done.items()))}
