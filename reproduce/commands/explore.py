"""`reproduce explore`: the page that runs the simulator in a browser, served on this machine and opened."""

import tempfile
import webbrowser
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.records.errors import DONE, UnavailableError
from reproduce.site.build import build

HELP = """Serves the page to this machine only, until Ctrl-C.

"""


class _Quiet(SimpleHTTPRequestHandler):
    """Serves files and prints nothing."""

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce explore`."""
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--offline", action="store_true", help="fetch all that the page needs now, by npm")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def run(parsed: Namespace) -> int:
    """Serve the page until Ctrl-C. Raises `UnavailableError` for a port that cannot be had."""
    with tempfile.TemporaryDirectory(prefix="ptdp-") as folder:
        build(Path(folder), parsed.offline)
        try:
            server = ThreadingHTTPServer(("127.0.0.1", parsed.port), partial(_Quiet, directory=folder))
        except (OSError, OverflowError) as error:
            raise UnavailableError(f"--port {parsed.port} cannot be used: {error}; try another, or none") from None
        address = f"http://127.0.0.1:{server.server_port}/"
        print(f"{address}  (Ctrl-C ends it)", flush=True)
        if not parsed.no_browser:
            webbrowser.open(address)
        with server, suppress(KeyboardInterrupt):
            server.serve_forever()
    return DONE
