"""`reproduce explore`: the page that runs the simulator in a browser, served and opened here, or as static files."""

import tempfile
import webbrowser
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from ptdp_core.interrupts import settle
from reproduce.annex.page.build import CDN, SOURCES_FILE, build
from reproduce.annex.page.huggingface_space import write_space
from reproduce.annex.page.serve import address, server
from reproduce.commands.options import path_to_write
from reproduce.output.terminal import shown_path
from results.records.errors import DONE, UnavailableError, UsageError

HELP = """Serves the page to this machine only, until Ctrl-C. Python comes from npm the first
time, and are kept on the disk (~/.cache/ptdp/npm): later it needs no network. With --out it is written as files, for
any file server.

examples:
  reproduce explore
  reproduce explore --out public
  reproduce explore --out public --offline   with Pyodide beside it
  reproduce explore --out space --space      as a Hugging Face Space
  reproduce explore --time                    how long the page makes people wait, in Chromium on this machine

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce explore`."""
    parser.add_argument("--port", type=_port, default=0, help="default: a free one")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--out", type=path_to_write, metavar="DIR", help="write the page, and serve nothing")
    target.add_argument("--time", action="store_true", help="measure the page in a browser (needs Chromium and npm)")
    parser.add_argument("--offline", action="store_true", help="with --out: put all that it needs beside it, by npm")
    parser.add_argument(
        "--space", action="store_true", help="with --out: add what makes the folder a Hugging Face Space"
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise ArgumentTypeError(f"{text!r} is no port; needs a number from 0, a free one, to 65535; try 8000")
    return int(text)


def run(parsed: Namespace) -> int:
    """Serve the page until Ctrl-C, write it, or measure it. Raises `UsageError` and `UnavailableError`."""
    if parsed.time:
        from reproduce.annex.page.browser_timing import measure

        print(*measure(), sep="\n")
        return DONE
    if parsed.out is not None:
        return write(parsed.out, parsed.offline, parsed.space)
    if parsed.offline or parsed.space:
        raise UsageError("--offline and --space are of a page that is written; needs --out DIR, too")
    with tempfile.TemporaryDirectory(prefix="ptdp-") as folder:
        try:
            build(Path(folder), offline=True, snapshot=True)
        except UnavailableError as error:
            print(f"note: the page asks {CDN} for Python and charts: {error}")
            build(Path(folder))
        try:
            serving = server(Path(folder), parsed.port)
        except OSError as error:
            reason = f"--port {parsed.port} cannot be used: {error.strerror}"
            raise UnavailableError(f"{reason}; needs a port that is free; try another, or none") from None
        print(f"{address(serving)}  (Ctrl-C ends it)", flush=True)
        if not parsed.no_browser:
            webbrowser.open(address(serving))
        try:
            with serving:
                serving.serve_forever()
        except KeyboardInterrupt:
            settle()
    return DONE


def write(out: Path, offline: bool, space: bool) -> int:
    """Write the page, and say where it is and how large. Raises `UsageError` for a folder of other files."""
    if out.is_file():
        raise UsageError(f"--out {out} is a file; needs a folder; try --out {out.with_suffix('')}")
    if not (out / SOURCES_FILE).is_file() and (others := sorted(path.name for path in out.glob("*"))):
        raise UsageError(
            f"--out {out} holds {others[0]}, which is none of ours; needs a new or empty folder, or an earlier "
            f"page; try --out {out / 'live'}"
        )
    built = build(out, offline, snapshot=True)
    if space:
        write_space(out)
    print(f"{shown_path(out / 'index.html')} ({built.size / 1e6:.1f} MB in all)")
    if built.no_snapshot:
        print(f"note: without a snapshot of Python, so the page takes longer to open: {built.no_snapshot}")
    return DONE
