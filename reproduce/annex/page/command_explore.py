"""`reproduce explore`: the page that runs the simulator in a browser, served on this machine and opened."""

import tempfile
import webbrowser
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from ptdp_core.interrupts import settle
from reproduce.annex.page.build import CDN, build
from reproduce.annex.page.serve import address, server
from results.records.errors import DONE, UnavailableError

HELP = """Serves the page to this machine only, until Ctrl-C. Python and the chart library come from npm the first
time, and are kept on the disk (~/.cache/ptdp/npm): later it needs no network.

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce explore`."""
    parser.add_argument("--port", type=_port, default=0, help="default: a free one")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise ArgumentTypeError(f"{text!r} is no port; needs a number from 0, a free one, to 65535; try 8000")
    return int(text)


def run(parsed: Namespace) -> int:
    """Serve the page until Ctrl-C. Raises `UnavailableError` for a port that cannot be had."""
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
