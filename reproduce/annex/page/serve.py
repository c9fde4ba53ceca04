"""Serves a folder to this machine."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NAMES = ("127.0.0.1", "localhost", "[::1]")  # of this machine


class _Local(SimpleHTTPRequestHandler):
    """Serves files to who asks for this machine by name, and prints nothing.

    A page of another host whose name was made to mean this machine (DNS rebinding) names that host and is refused.
    """

    def parse_request(self) -> bool:
        """Whether the request is one to answer; it is refused otherwise."""
        if not super().parse_request():
            return False
        assert isinstance(self.server, ThreadingHTTPServer)
        port = self.server.server_port
        # A browser leaves out the usual port.
        if self.headers.get("Host") in {f"{name}:{port}" for name in NAMES} | set(NAMES if port == 80 else ()):
            return True
        self.send_error(HTTPStatus.MISDIRECTED_REQUEST, f"only http://{NAMES[0]}:{port}/ is served here")
        return False

    def translate_path(self, path: str) -> str:
        """The file of an address; one with a zero in it, which no file has, is that of no file."""
        return super().translate_path(path).replace("\0", "\ufffd")

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


def server(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """What serves the folder at a port, by default a free one, as soon as its `serve_forever` is called.

    Raises `OSError` or `OverflowError` for a port that cannot be had.
    """
    return ThreadingHTTPServer(("127.0.0.1", port), partial(_Local, directory=folder))


def address(serving: ThreadingHTTPServer) -> str:
    """Where a browser finds the folder."""
    return f"http://127.0.0.1:{serving.server_port}/"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of the folder, served meanwhile."""
    with server(folder) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield address(serving)
        serving.shutdown()
