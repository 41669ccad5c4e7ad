"""What the proxies before catalogs and stores have in common."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.servers.answering import answering

SILENCE_SECONDS, LATE_SECONDS = 3.0, 0.6


class Late:
    """Hands requests on when nobody waits for the answer any more."""

    def __init__(self) -> None:
        self.late: list[threading.Thread] = []

    def hand_on(self, method: str, path: str, headers: dict[str, str], body: bytes) -> object:
        """The server's answer."""
        raise NotImplementedError

    def hand_on_late(self, *request: Any) -> None:
        """Hand a request on in a moment."""

        def work() -> None:
            time.sleep(LATE_SECONDS)
            self.hand_on(*request)

        self.late.append(threading.Thread(target=work))
        self.late[-1].start()


class Disconnecting(BaseHTTPRequestHandler):
    """One request, which may get no answer."""

    protocol_version = "HTTP/1.1"

    def close(self) -> None:
        """End the connection without an answer."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(2)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def listening(proxy: Late, handler: type[Disconnecting]) -> Iterator[str]:
    """The URI of a proxy. `handler` gets it as its attribute `proxy`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (handler,), {"proxy": proxy}))
    with answering(server):
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            for thread in proxy.late:
                thread.join()
