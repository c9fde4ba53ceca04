"""Section `page`: what `reproduce explore --out` writes, and which sources the page loads into the browser."""

import json
import subprocess
import sys
import tempfile

from reproduce.annex.exact.entries import PROBLEM, Entry, Section
from results import ROOT

# The unit of the archive's size, 64 KiB, less than a twentieth of it. In bytes every change would be a difference.
UNIT = 1 << 16

PROBE = """
import json, sys
from pathlib import Path
from reproduce.annex.page import build
folder = Path(sys.argv[1])
build.build(folder)
archive = (folder / build.SOURCES_FILE).read_bytes()
files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
print(json.dumps([files, sorted(json.loads(archive)), len(archive)]))
"""


def collect() -> Section:
    """Write the page without its libraries and without a snapshot of Python, which would need npm and node."""
    with tempfile.TemporaryDirectory(prefix="ptdp-") as folder:
        process = subprocess.run(
            [sys.executable, "-c", PROBE, folder], cwd=ROOT, capture_output=True, text=True, check=False
        )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or ["it says nothing"]
        return {"reproduce explore": Entry({"order": {PROBLEM: f"reproduce explore: {lines[-1]}"}})}
    files, sources, size = json.loads(process.stdout)
    # Every artifact is on the page: a new one is no difference.
    named = [name for name in sources if "/papers/" not in name]
    content = {"build.build": files, "build.sources": named}
    return {
        "reproduce explore": Entry(
            {
                "content": {function: ", ".join(f"1 {name}" for name in names) for function, names in content.items()},
                "memory": {"units of 64 KiB of build.sources, rounded up": -(-size // UNIT)},
            }
        )
    }
