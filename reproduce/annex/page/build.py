"""Builds the page: its files, the project's sources as one file, a snapshot of Python, and Pyodide.

Pyodide comes from npm, pinned in `assets.json` with a hash for each file. The page fetches it from a public CDN, or
finds it beside itself if it was built with `offline`.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from results import ROOT
from results.records import provenance
from results.records.errors import UnavailableError
from results.records.storage import atomic_write_bytes

FOLDER = Path(__file__).parent
ASSETS: dict[str, dict[str, Any]] = json.loads((FOLDER / "assets.json").read_text(encoding="utf-8"))
CDN = "https://cdn.jsdelivr.net/npm"
VENDOR = "vendor"
SOURCES_FILE, SNAPSHOT_FILE = "sources.json", "snapshot.bin"
PLACE = "/ptdp"  # where the sources are in the browser
# The sources that the browser needs; none of them imports what Pyodide would have to load besides.
SOURCES = (
    "kernels/__init__.py",  # never imported, but looked for
    "ptdp_core/*.py",
    "ptdp_core/config/**/*",
    "ptdp_core/layers/**/*",
    "ptdp_core/layout/**/*",
    "ptdp_core/schedules/**/*",
    "ptdp_core/simulator/**/*",
    "benchmarks/*.py",
    "results/*.py",
    "results/records/**/*",
    "reproduce/*.py",
    "reproduce/experiment/**/*",
    "reproduce/papers/**/*",
    "reproduce/running/**/*",
    "reproduce/output/*.py",
    "reproduce/planning/**/*",
    "reproduce/annex/__init__.py",
    "reproduce/annex/papers/**/*",
    "reproduce/annex/page/*.py",
    "reproduce/annex/page/*.toml",
    "results/reference/accuracy/margins.json",
)


class Built(NamedTuple):
    """The size of a page in bytes, and why it has no snapshot of Python; None if it has one or needs none."""

    size: int
    no_snapshot: str | None


def build(out: Path, offline: bool = False, snapshot: bool = False) -> Built:
    """Write the page to a folder; with `offline` Pyodide, too.

    With `snapshot`, and if node and npm are installed, also the memory of a Python that has imported the project, from
    which the page opens faster. Raises `UnavailableError` if `offline` needs npm and it is missing, or gives other
    files than those pinned.
    """
    places = {name: f"{CDN}/{name}@{asset['version']}" for name, asset in ASSETS.items()}
    if offline:
        places = {name: f"{VENDOR}/{name}" for name in ASSETS}
        for name, place in places.items():
            fetch(name, out / place)
    project_files = {SOURCES_FILE: sources()}
    atomic_write_bytes(out / SOURCES_FILE, project_files[SOURCES_FILE])
    no_snapshot = None
    if snapshot:
        try:
            snapshot_bytes = _snapshot(out / SOURCES_FILE, out / places["pyodide"] if offline else None)
            project_files[SNAPSHOT_FILE] = snapshot_bytes
            atomic_write_bytes(out / SNAPSHOT_FILE, snapshot_bytes)
        except UnavailableError as error:
            no_snapshot = str(error)
    # Asked for with their digests, so that a browser does not take an earlier page's files from its cache.
    urls = {name: f"{name}?{hashlib.sha256(content).hexdigest()[:12]}" for name, content in project_files.items()}
    values = _values(places, urls)
    for path in sorted((FOLDER / "page").iterdir()):
        text = path.read_text(encoding="utf-8")
        for mark, value in values.items():
            text = text.replace(mark, value)
        atomic_write_bytes(out / path.name, text.encode())
    return Built(sum(path.stat().st_size for path in out.rglob("*") if path.is_file()), no_snapshot)


def _values(places: dict[str, str], urls: dict[str, str]) -> dict[str, str]:
    """What the page's placeholders stand for: where the libraries are, the project's own files, the security policy."""
    from reproduce.annex.page import home  # which loads the definitions of figures; `--help` needs none
    from reproduce.output import colours

    commit, dirty = provenance.git_state(ROOT)
    version = f"{commit[:10]}{' with changes' if dirty else ''}" if commit else "without a commit"
    runtime = {
        "base": f"{places['pyodide']}/",
        "files": ASSETS["pyodide"]["files"],
        "sources": urls[SOURCES_FILE],
        "snapshot": urls.get(SNAPSHOT_FILE),
    }
    return {
        "@VERSION@": version,
        "@RUNTIME@": json.dumps(runtime),
        "@POLICY@": _policy(f"{places['pyodide']}/"),
        "@TOKENS@ */": f"*/ {colours.properties()}{colours.classes()}",
        **home.marks(),
    }


def _policy(runtime: str) -> str:
    """The page's content security policy, which its worker has, too: the files of `build` and nothing else.

    What stands inside the page is allowed by its hash; blobs, because the worker imports the runtime's modules from
    them after it has checked their bytes.
    """
    page = (FOLDER / "page" / "index.html").read_text(encoding="utf-8")
    inline = [
        "'" + integrity(script.encode()) + "'"
        for script in re.findall(r"<script(?: nomodule)?>(.*?)</script>", page, re.S)
    ]
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src 'self' blob: 'wasm-unsafe-eval' {' '.join(inline)}",
            "worker-src 'self' blob:",
            f"connect-src 'self' {runtime if runtime.startswith(CDN) else ''}".rstrip(),
            "style-src 'self'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def sources() -> bytes:
    """The texts of the sources that the browser needs, by their paths there, as JSON."""
    paths = {path for pattern in SOURCES for path in ROOT.glob(pattern)}
    texts = {
        f"{PLACE}/{path.relative_to(ROOT).as_posix()}": path.read_text(encoding="utf-8")
        for path in sorted(paths)
        if path.is_file() and path.suffix in (".py", ".json", ".toml")
    }
    return json.dumps(texts).encode()


def _snapshot(sources: Path, pyodide: Path | None) -> bytes:
    """The memory of a Python that has imported the sources, compressed; without `pyodide`, the runtime is fetched.

    Raises `UnavailableError` if node or npm is missing or fails.
    """
    node = shutil.which("node")
    if node is None:
        raise UnavailableError("node was not found; try installing it")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if pyodide is None:
            fetch("pyodide", pyodide := folder / "pyodide")
        image = folder / SNAPSHOT_FILE
        command = [node, str(FOLDER / "snapshot.mjs"), str(pyodide), str(sources), str(image)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnavailableError(f"node cannot start Python: {_last_line(done.stderr)}")
        return image.read_bytes()


def fetch(name: str, folder: Path) -> None:
    """Put the files of a pinned package into the folder: those kept from before, or from npm, which are then kept.

    Raises `UnavailableError` if npm is needed and is missing, or gives other files than those pinned.
    """
    kept = _kept_folder() / f"{name}@{ASSETS[name]['version']}"
    if not _is_whole(name, kept):
        with suppress(OSError):  # a home that cannot be written
            shutil.rmtree(kept, ignore_errors=True)
            _download(name, kept)
    if _is_whole(name, kept):
        shutil.copytree(kept, folder, dirs_exist_ok=True)
    else:
        _download(name, folder)


def _kept_folder() -> Path:
    """Where packages are kept, so that the page can be made again without a network."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ptdp" / "npm"


def _is_whole(name: str, folder: Path) -> bool:
    """Whether a folder has all the pinned files of a package, as they were pinned."""
    files = ASSETS[name]["files"].items()
    return all((folder / file).is_file() and integrity((folder / file).read_bytes()) == check for file, check in files)


def _download(name: str, folder: Path) -> None:
    """Fetch a pinned package by npm into the folder, and check its files. Raises `UnavailableError`."""
    npm, asset = shutil.which("npm"), ASSETS[name]
    if npm is None:
        raise UnavailableError(f"npm was not found; needs it to fetch {name}; try installing npm")
    with tempfile.TemporaryDirectory() as packed:
        command = [npm, "pack", "--silent", f"{name}@{asset['version']}", "--pack-destination", packed]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnavailableError(f"npm cannot fetch {name}: {_last_line(done.stderr)}")
        (archive,) = Path(packed).iterdir()
        with tarfile.open(archive) as tar:
            for file, check in asset["files"].items():
                member = tar.extractfile(f"package/{file}")
                content = member.read() if member else b""
                if integrity(content) != check:
                    raise UnavailableError(f"{name}@{asset['version']}: {file} is not the file that was pinned")
                atomic_write_bytes(folder / file, content)


def _last_line(text: str) -> str:
    return (text.strip() or "no reason given").splitlines()[-1]


def integrity(content: bytes) -> str:
    """The content's hash, as browsers take it (Subresource Integrity)."""
    return "sha384-" + base64.b64encode(hashlib.sha384(content).digest()).decode()
