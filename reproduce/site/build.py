"""Builds the page: its files, the project's own sources as one archive, and what it needs of others.

What it needs of others (Pyodide, d3, Observable Plot) comes from npm, pinned with an integrity hash for each file in
`assets.json`: the page fetches it from a public CDN, or finds it beside itself if it was built with `offline`.
"""

import base64
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import reproduce
from benchmarks.records import provenance
from benchmarks.records.errors import UnavailableError
from benchmarks.records.storage import atomic_write_bytes

FOLDER = Path(__file__).parent
ASSETS: dict[str, dict[str, Any]] = json.loads((FOLDER / "assets.json").read_text(encoding="utf-8"))
CDN = "https://cdn.jsdelivr.net/npm"
VENDOR = "vendor"
ARCHIVE = "ptdp.zip"
# The sources that the browser needs; none of them imports what Pyodide would have to load besides.
SOURCES = (
    "kernels/__init__.py",  # never imported, but looked for
    "ptdp_core/*.py",
    "ptdp_core/layout/**/*",
    "ptdp_core/schedules/**/*",
    "ptdp_core/simulator/**/*",
    "benchmarks/*.py",
    "benchmarks/records/**/*",
    "reproduce/*.py",
    "reproduce/experiment/**/*",
    "reproduce/artifacts/**/*",
    "reproduce/running/**/*",
    "reproduce/output/*.py",
    "reproduce/analysis/**/*",
    "reproduce/site/*.py",
    "results/reference/accuracy/margins.json",
)


def build(out: Path, offline: bool = False) -> int:
    """Write the page to a folder and return its size in bytes; with `offline`, with all that it needs of others.

    Raises `UnavailableError` if npm is needed and missing, or gives other files than those pinned.
    """
    places = _vendor(out) if offline else {name: f"{CDN}/{name}@{asset['version']}" for name, asset in ASSETS.items()}
    for path in sorted((FOLDER / "page").iterdir()):
        atomic_write_bytes(out / path.name, _filled(path.read_text(encoding="utf-8"), places).encode())
    atomic_write_bytes(out / ARCHIVE, archive())
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file())


def _filled(text: str, places: dict[str, str]) -> str:
    """A file of the page with its placeholders filled in."""
    commit, dirty = provenance.git_state(reproduce.ROOT)
    version = f"{commit[:10]}{' with changes' if dirty else ''}" if commit else "without a commit"
    runtime = ASSETS["pyodide"]["files"]
    files = [{"url": f"{places['pyodide']}/{name}", "integrity": check} for name, check in runtime.items()]
    values = {"@VERSION@": version, "@RUNTIME@": json.dumps({"base": f"{places['pyodide']}/", "files": files})}
    for mark, package in (("D3", "d3"), ("PLOT", "@observablehq/plot")):
        (name, check), *_ = ASSETS[package]["files"].items()
        values[f"@{mark}_CHECK@"] = f'integrity="{check}" crossorigin="anonymous"'
        values[f"@{mark}@"] = f"{places[package]}/{name}"
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text


def archive() -> bytes:
    """The sources that the browser needs, as a zip; the same bytes from the same sources."""
    data = io.BytesIO()
    paths = {path for pattern in SOURCES for path in reproduce.ROOT.glob(pattern)}
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(paths):
            if path.is_file() and path.suffix in (".py", ".json", ".toml"):
                entry = zipfile.ZipInfo(path.relative_to(reproduce.ROOT).as_posix())  # dated 1980, always
                file.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return data.getvalue()


def _vendor(out: Path) -> dict[str, str]:
    """Fetch the pinned packages by npm into the folder, and check them; where each is, relative to the page."""
    npm = shutil.which("npm")
    if npm is None:
        raise UnavailableError("npm was not found; needs it for --offline; try installing npm, or leave --offline out")
    for name, asset in ASSETS.items():
        with tempfile.TemporaryDirectory() as folder:
            command = [npm, "pack", "--silent", f"{name}@{asset['version']}", "--pack-destination", folder]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise UnavailableError(
                    f"npm cannot fetch {name}: {(done.stderr.strip() or 'no reason given').splitlines()[-1]}"
                )
            (packed,) = Path(folder).iterdir()
            with tarfile.open(packed) as tar:
                for file, check in asset["files"].items():
                    member = tar.extractfile(f"package/{file}")
                    content = member.read() if member else b""
                    if integrity(content) != check:
                        raise UnavailableError(f"{name}@{asset['version']}: {file} is not the file that was pinned")
                    atomic_write_bytes(out / VENDOR / name / file, content)
    return {name: f"{VENDOR}/{name}" for name in ASSETS}


def integrity(content: bytes) -> str:
    """The content's hash, as browsers take it (Subresource Integrity)."""
    return "sha384-" + base64.b64encode(hashlib.sha384(content).digest()).decode()
