"""A proxy before a catalog that speaks HTTP: it loses and falsifies answers, or refuses some requests."""

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from tests.faults.proxied import SILENCE_SECONDS, Disconnecting, Late, listening


class Proxy(Late):
    """Hands requests on to a catalog; one that changes something meets the fault, after `passing` others."""

    def __init__(self, upstream: str) -> None:
        super().__init__()
        self.upstream, self.fault, self.passing = upstream, "", 0
        self.without: tuple[str, ...] = ()  # requests that the catalog does not offer

    def meets(self) -> str:
        """The fault of the next changing request."""
        if self.passing:
            self.passing -= 1
            return ""
        fault, self.fault = self.fault, ""
        return fault

    def hand_on(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """The catalog's answer."""
        host = urlsplit(self.upstream)
        connection = http.client.HTTPConnection(str(host.hostname), host.port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


class Handler(Disconnecting):
    """One request."""

    proxy: Proxy

    def handle_request(self) -> None:
        """Hand it on, with its fault."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        dropped = {"connection", "accept-encoding", "host"}
        headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
        request = self.command, self.path, headers, body
        if not self.is_let_in(body):
            return
        if self.is_refused(body):
            self.answer(406, b'{"error": {"message": "not offered", "type": "UnsupportedOperation", "code": 406}}')
            return
        fault = self.proxy.meets() if self.changes() else ""
        if fault == "late":
            self.proxy.hand_on_late(*request)
        if fault in {"late", "closed before it"}:
            self.close()
            return
        if fault.endswith(" before it"):
            self.answer(int(fault[:3]), b"{}")
            return
        status, answer = [self.proxy.hand_on(*request) for _ in range(2 if fault == "twice" else 1)][-1]
        if fault == "silence after it":
            time.sleep(SILENCE_SECONDS)
        if fault in {"closed after it", "silence after it"}:
            self.close()
        elif fault.endswith(" after it"):
            self.answer(int(fault[:3]), b"{}")
        else:
            self.answer(status, self.offered(answer) if self.path.startswith("/v1/config") else answer)

    def is_let_in(self, body: bytes) -> bool:  # noqa: ARG002 - for proxies that verify who asks
        """Whether the request is handed on; else it has been answered."""
        return True

    def is_refused(self, body: bytes) -> bool:
        """Whether the request is one that the catalog does not offer."""
        staged = "stage-create" in self.proxy.without and b'"stage-create":true' in body.replace(b" ", b"")
        return staged or any(self.path.endswith(f"/{name}") for name in self.proxy.without)

    def offered(self, config: bytes) -> bytes:
        """What the catalog says that it offers."""
        found = json.loads(config)
        ends = tuple(f"/{name}" for name in self.proxy.without)
        if ends:
            found["endpoints"] = [one for one in found["endpoints"] if not one.endswith(ends)]
        return json.dumps(found).encode()

    def changes(self) -> bool:
        """Whether the request changes something, or prepares that; Glue's requests name their action in a header."""
        if action := self.headers.get("X-Amz-Target"):
            return action.endswith((".CreateTable", ".UpdateTable", ".DeleteTable"))
        return self.command == "POST" and "/tables" in self.path and "/metrics" not in self.path

    do_GET = do_DELETE = do_HEAD = do_POST = handle_request  # noqa: N815 - the names that its base calls

    def answer(self, status: int, body: bytes) -> None:
        """Send an answer; a client that has disconnected gets none."""
        with suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)


@contextmanager
def proxied(upstream: str, handler: type[Handler] = Handler) -> Iterator[tuple[Proxy, str]]:
    """A proxy, and its URI."""
    proxy = Proxy(upstream)
    with listening(proxy, handler) as uri:
        yield proxy, uri
