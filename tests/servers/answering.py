"""Servers of a test's own, which answer in a thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from typing import TypeVar

Server = TypeVar("Server", bound=BaseServer)

POLL_SECONDS = 0.01  # by default, the end of a server takes half a second


@contextmanager
def answering(server: Server) -> Iterator[Server]:
    """Answer until the end of the block, at which the server is closed."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": POLL_SECONDS}, daemon=True)
    with server:
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
