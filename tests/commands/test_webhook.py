"""The program of the page that posts events: which answers it tries again, and at which it stops."""

import json
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.servers.answering import answering

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "feed-another-system.md").read_text()
EVENTS = b"".join(json.dumps({"id": one, "sequence": one}).encode() + b"\n" for one in ("p1", "p2", "p3"))


def posted(folder: Path, answers: list[int]) -> tuple[int, str, list[str]]:
    """Post the events to a server that gives these answers: the exit code, what is said, and which events came."""
    [program] = re.findall(r"```text\n# webhook\.py\n(.*?)```", PAGE, re.DOTALL)
    (folder / "webhook.py").write_text(program)
    left, came = list(answers), list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Give the next answer; 204 after the last one."""
            came.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["id"])
            self.send_response(left.pop(0) if left else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with answering(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        command = [sys.executable, "webhook.py", f"http://127.0.0.1:{server.server_port}", "kept"]
        ended = subprocess.run(command, cwd=folder, input=EVENTS, capture_output=True, timeout=60, check=False)
    return ended.returncode, ended.stderr.decode(), came


def test_an_event_is_posted_until_it_is_accepted(tmp_path: Path) -> None:
    """After answers that may be others the next time."""
    code, said, came = posted(tmp_path, [204, 503, 429])
    assert (code, came, (tmp_path / "kept").read_text()) == (0, ["p1", "p2", "p2", "p2", "p3"], "p3")
    assert said.count("trying again") == 2


@pytest.mark.parametrize("refusal", [400, 401, 404, 422, 307])
def test_a_refused_event_ends_the_program(tmp_path: Path, refusal: int) -> None:
    """The event is named and not left out: the next call posts it again."""
    code, said, came = posted(tmp_path, [204, refusal])
    assert (code, came, (tmp_path / "kept").read_text()) == (1, ["p1", "p2"], "p1")
    assert f"HTTP Error {refusal}" in said
    assert '"p2"' in said
