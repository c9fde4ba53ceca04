"""Section `page`: what `reproduce explore --out` writes, and which sources the page loads into the browser."""

import tempfile
from typing import Any

from reproduce.annex.exact import probes
from reproduce.annex.exact.entries import Entry, Quantities, Section

# The unit of the archive's size, 64 KiB, less than a twentieth of it. In bytes every change would be a difference.
UNIT = 1 << 16

PROBE = """
import json, sys
from pathlib import Path
from reproduce.annex.page import build
folder = Path(json.loads(sys.argv[1]))
build.build(folder)
archive = (folder / build.SOURCES_FILE).read_bytes()
files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
print(json.dumps([files, sorted(json.loads(archive)), len(archive)]))
"""


def collect() -> Section:
    """Write the page without its libraries and without a snapshot of Python, which would need npm and node."""
    with tempfile.TemporaryDirectory(prefix="ptdp-") as folder:
        return probes.ask("reproduce explore", PROBE, folder, _section)


def _section(printed: Any) -> Section:
    files, sources, size = printed
    # Every artifact is on the page: a new one is no difference.
    named = [name for name in sources if "/papers/" not in name]
    quantities: Quantities = {
        "content": {"build.build": probes.each(files), "build.sources": probes.each(named)},
        "memory": {"units of 64 KiB of build.sources, rounded up": -(-size // UNIT)},
    }
    return {"reproduce explore": Entry(quantities)}
