"""A store with the protocol of Google Cloud Storage: fake-gcs-server, built once from its Go module and cached.

It has not all of the XML interface, by which the client of the state writes: an adapter before it translates those
requests into the JSON interface, whose conditions are right there. So our use of generations is tested, and what the
client sends; Google's own servers are not.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from lakeingest.demo.s3 import go_program
from lakeingest.demo.server import HOST, await_start, child, reserved_port
from tests.servers.answering import answering

MODULE, BUCKET = "github.com/fsouza/fake-gcs-server@v1.56.1", "lake"


@contextmanager
def local_gcs(folder: Path) -> Iterator[str]:
    """The URL of a store in memory, with one bucket; OperatorNeeded if the server cannot be built or does not start."""
    program = go_program(MODULE, folder, lambda _: None)
    folder.mkdir(parents=True, exist_ok=True)
    with reserved_port(None) as port:
        behind = f"http://{HOST}:{port}"
        command = [str(program), "-scheme", "http", "-host", HOST, "-port", str(port), "-backend", "memory"]
        command += ["-external-url", behind, "-public-host", f"{HOST}:{port}"]
        log = folder / "gcs.log"
        with child(command, log) as process:
            bucket = _request("POST", f"{behind}/storage/v1/b?project=tests", json.dumps({"name": BUCKET}).encode())
            await_start(process, log, lambda: urllib.request.urlopen(bucket, timeout=5).close(), 30.0)  # noqa: S310
            with _adapter(behind) as url:
                yield url


def _request(method: str, url: str, body: bytes | None = None) -> urllib.request.Request:
    headers = {} if body is None else {"Content-Type": "application/json"}
    return urllib.request.Request(url, data=body, method=method, headers=headers)  # noqa: S310 - of this machine


@contextmanager
def _adapter(behind: str) -> Iterator[str]:
    """The URL of the adapter before the server."""

    class Adapter(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            """Put or copy an object, as the JSON interface has it."""
            _, bucket, key = unquote(urlsplit(self.path).path).split("/", 2)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            generation = self.headers.get("x-goog-if-generation-match")
            condition = f"&ifGenerationMatch={generation}" if generation else ""
            if source := self.headers.get("x-goog-copy-source"):
                there, _, name = unquote(source).lstrip("/").partition("/")
                names = [quote(one, safe="") for one in (there, name, bucket, key)]
                url = "{}/storage/v1/b/{}/o/{}/rewriteTo/b/{}/o/{}?".format(behind, *names) + condition
                request = _request("POST", url, b"{}")
            else:
                name = quote(key, safe="")
                request = _request(
                    "POST", f"{behind}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}{condition}", body
                )
            status, _, said = _sent(request)
            found = json.loads(said or b"{}")
            found = found.get("resource", found)
            headers = {"ETag": f'"{found.get("etag", "")}"', "x-goog-generation": str(found.get("generation", ""))}
            self._answer(status, headers if status < 300 else {}, b"<CopyObjectResult/>" if source else b"")

        def _pass(self) -> None:
            status, headers, said = _sent(_request(self.command, behind + self.path), dict(self.headers))
            self._answer(status, headers, said)

        do_GET = do_HEAD = do_DELETE = _pass  # noqa: N815

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in {"content-length", "connection", "transfer-encoding", "date"}:
                    self.send_header(name, value)
            length = headers.get("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with answering(ThreadingHTTPServer((HOST, 0), Adapter)) as server:
        yield f"http://{HOST}:{server.server_port}"


def _sent(request: urllib.request.Request, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
    for name in ("Range", "If-Match", "If-None-Match"):
        if headers and name.lower() in {key.lower() for key in headers}:
            request.add_header(name, next(value for key, value in headers.items() if key.lower() == name.lower()))
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - of this machine
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()
