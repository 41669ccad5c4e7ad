"""A port at which the figures can be asked for by HTTP, by Python's own server.

The server of Prometheus's library is made of the same parts, but its import takes more than a run with little to do may
spend on metrics.
"""

import socket
import socketserver
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_WAIT_SECONDS = 10.0  # how long a client may say nothing, or take nothing of its answer
_PAUSE_SECONDS = 0.1  # after a connection that could not be taken


class Endpoint(ThreadingHTTPServer):
    """A port that answers each GET and HEAD with a text. Each client has a thread, so that a slow one delays no other.

    While nobody asks, it takes no CPU time, unlike `serve_forever`, which looks twice a second whether it has to end.
    """

    allow_reuse_port = False  # else a port that is taken would be shared, and the run would not say so

    def __init__(
        self, address: str, port: int, answer: Callable[[], bytes], content_type: str, spent: Callable[[float], None]
    ) -> None:
        """Listen. `spent` gets the CPU seconds of answers, from the threads that give them. Raises OSError."""
        # the first address that the name stands for: its family, and host and port in `there`
        [(self.address_family, _, _, _, there), *_] = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
        self.answer, self.content_type, self._spent = answer, content_type, spent
        super().__init__((str(there[0]), port), _Handler)
        self._is_open = True
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more."""
        self._is_open = False
        with suppress(OSError):  # the thread waits for a connection, so it gets one
            socket.create_connection(self.socket.getsockname()[:2], _WAIT_SECONDS).close()
        self._thread.join(_WAIT_SECONDS)
        self.server_close()

    def _listen(self) -> None:
        """Take connections until `close` is called. Each connection gets a thread."""
        while self._is_open:
            try:
                client = self.get_request()  # waits for one
            except OSError:  # the client is gone already, or this process has no file descriptor left
                time.sleep(_PAUSE_SECONDS)
                continue
            began = time.thread_time()
            self.process_request(*client)
            self._spent(time.thread_time() - began)

    def server_bind(self) -> None:
        """Bind the port, but do not ask the name service who this machine is, as the class above does."""
        socketserver.TCPServer.server_bind(self)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one client, in a thread that does nothing else."""
        super().process_request_thread(request, client_address)
        self._spent(time.thread_time())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the client is gone, or was too slow."""


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint
    timeout = _WAIT_SECONDS

    def do_HEAD(self) -> None:
        self._send_head(self.server.answer())

    def do_GET(self) -> None:
        body = self.server.answer()
        self._send_head(body)
        self.wfile.write(body)

    def _send_head(self, body: bytes) -> None:
        self.send_response_only(200)  # without the date, and the version of Python
        self.send_header("Content-Type", self.server.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write no line for each request into the log of the run."""
