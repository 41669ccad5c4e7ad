"""Proxies before a catalog and before a store: they lose answers, falsify them, delay requests and send them twice."""

import http.client
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from tests.faults.proxied import SILENCE_SECONDS, Disconnecting, Late, listening

Answer = tuple[int, dict[str, str], bytes]  # code, headers, body


def changes(method: str, path: str, headers: Mapping[str, str]) -> bool:
    """Whether a request changes something in a catalog, or prepares that; Glue's requests name their action."""
    if action := headers.get("X-Amz-Target"):
        return action.endswith((".CreateTable", ".UpdateTable", ".DeleteTable"))
    return method == "POST" and "/tables" in path and "/metrics" not in path


class Proxy(Late):
    """Hands requests on to a catalog; one that changes something meets the fault, after `passing` others."""

    dropped = frozenset({"connection", "accept-encoding", "host", "expect"})  # headers that are not handed on

    def __init__(self, upstream: str) -> None:
        super().__init__()
        self.upstream, self.fault, self.passing = upstream, "", 0

    def meets(self, method: str, path: str, headers: dict[str, str]) -> str:
        """The fault of a request; empty where it has none."""
        if not changes(method, path, headers):
            return ""
        if self.passing:
            self.passing -= 1
            return ""
        fault, self.fault = self.fault, ""
        return fault

    def hand_on(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """The server's answer."""
        host = urlsplit(self.upstream)
        connection = http.client.HTTPConnection(str(host.hostname), host.port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def excuse(self, _: str) -> tuple[dict[str, str], bytes]:
        """What a false answer has beside its code."""
        return {"Content-Type": "application/json"}, b"{}"


class BadCatalog(Proxy):
    """One in three of the requests that change something meets a fault, and few of the others."""

    away = ("closed before it", *(f"{code} before it" for code in (500, 502, 503, 504)))
    done = ("closed after it", "twice", *(f"{code} after it" for code in (401, 500, 502, 503, 504)))
    faults = (*away, *done, "401 before it", "late")

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.chance = random.Random(23)
        self.met: Counter[str] = Counter()

    def meets(self, method: str, path: str, headers: dict[str, str]) -> str:
        """A fault by chance."""
        share, faults = (0.33, self.faults) if changes(method, path, headers) else (0.03, self.away)
        return self.counted(self.chance.choice(faults)) if self.chance.random() < share else ""

    def counted(self, fault: str) -> str:
        """The fault, which is counted."""
        self.met[fault] += 1
        return fault


class BadStore(BadCatalog):
    """Loses 30 % of the answers to what changes something; now and then it is overloaded for a moment."""

    dropped = frozenset({"connection", "expect"})  # the name of the host is signed
    every_seconds, burst_seconds = 15.0, 1.5

    def meets(self, method: str, _: str, __: dict[str, str]) -> str:
        """A fault by chance, or because of the time."""
        if time.monotonic() % self.every_seconds < self.burst_seconds:
            return self.counted(self.chance.choice(("503 before it", "503 before it, SlowDown")))
        lost = method in {"PUT", "POST", "DELETE"} and self.chance.random() < 0.3
        return self.counted("closed after it") if lost else ""

    def excuse(self, fault: str) -> tuple[dict[str, str], bytes]:
        """As S3 says it."""
        code = "SlowDown" if fault.endswith("SlowDown") else "ServiceUnavailable"
        body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>Later</Message></Error>'
        return {"Content-Type": "application/xml"}, body.encode()


class Handler(Disconnecting):
    """One request."""

    proxy: Proxy

    def handle_request(self) -> None:
        """Hand it on, with its fault."""
        body = self.body()
        headers = {name: value for name, value in self.headers.items() if name.lower() not in self.proxy.dropped}
        request = self.command, self.path, headers, body
        fault = self.proxy.meets(self.command, self.path, headers)
        if fault == "late":
            self.proxy.hand_on_late(*request)
        if fault in {"late", "closed before it"}:
            self.close()
            return
        if " before it" in fault:
            self.answer(int(fault[:3]), *self.proxy.excuse(fault))
            return
        answer = [self.proxy.hand_on(*request) for _ in range(2 if fault == "twice" else 1)][-1]
        if fault == "silence after it":
            time.sleep(SILENCE_SECONDS)
        if fault in {"closed after it", "silence after it"}:
            self.close()
        elif fault.endswith(" after it"):
            self.answer(int(fault[:3]), *self.proxy.excuse(fault))
        else:
            self.answer(*answer)

    do_GET = do_DELETE = do_HEAD = do_POST = do_PUT = handle_request  # noqa: N815 - the names that its base calls

    def body(self) -> bytes:
        """What was sent with the request. Pieces keep their lengths, and what follows them."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = [self.rfile.readline()]
        while length := int(parts[-1].partition(b";")[0], 16):
            parts += [self.rfile.read(length + 2), self.rfile.readline()]
        while parts[-1].strip():
            parts.append(self.rfile.readline())
        return b"".join(parts)

    def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send an answer; a client that has disconnected gets none."""
        with suppress(OSError):
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in {"connection", "transfer-encoding", "content-length"}:
                    self.send_header(name, value)
            length = headers.get("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(body)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)


@contextmanager
def proxied(upstream: str, kind: type[Proxy] = Proxy) -> Iterator[tuple[Proxy, str]]:
    """A proxy, and its URI."""
    proxy = kind(upstream)
    with listening(proxy, Handler) as uri:
        yield proxy, uri
