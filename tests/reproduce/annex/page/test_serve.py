"""The server of the page answers who asks for this machine, and refuses who was led here under another name."""

from http.client import HTTPConnection

import pytest

from reproduce.annex.page.serve import served


@pytest.fixture
def ask(tmp_path):
    """Asks for a file, as a browser that believes the server to be `host`; returns status and text."""
    (tmp_path / "index.html").write_text("the page")
    with served(tmp_path) as address:
        port = int(address.rstrip("/").rpartition(":")[2])

        def request(host, path="/"):
            connection = HTTPConnection("127.0.0.1", port, timeout=10)
            connection.putrequest("GET", path, skip_host=True)
            if host is not None:
                connection.putheader("Host", host.format(port=port))
            connection.endheaders()
            answer = connection.getresponse()
            text = answer.read().decode()
            connection.close()
            return answer.status, text

        yield request


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}"])
def test_names_of_this_machine_are_served(ask, host):
    assert ask(host) == (200, "the page")


@pytest.mark.parametrize(
    "host",
    ["evil.example:{port}", "evil.example", "127.0.0.1", "localhost:1", "127.0.0.1:{port}.evil.example", "", None],
)
def test_any_other_name_is_refused_with_a_line(ask, host):
    status, text = ask(host)
    assert status == 421
    assert "is served here" in text
    assert "the page" not in text


def test_nothing_outside_the_folder_is_served(ask):
    assert ask("localhost:{port}", "/../../../../etc/passwd")[0] == 404
    assert ask("localhost:{port}", "/%2e%2e/%2e%2e/etc/passwd")[0] == 404
