"""A proxy before a server of any protocol: it loses the answer to a request, or the request, or hands it on late.

The answer of the server is waited for, so that a request has taken effect when its answer is lost.
"""

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.faults.proxied import LATE_SECONDS
from tests.faults.proxy import Proxy

FAULTS = ("closed after it", "closed before it", "late")
_BYTES = 1 << 16


@contextmanager
def tcp_proxied(host: str, port: int, changing: tuple[bytes, ...]) -> Iterator[tuple[Proxy, int]]:
    """A proxy, and its port; a request that contains one of these words changes something."""
    proxy = Proxy("")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError):  # the server was closed
                while True:
                    client, _ = server.accept()
                    pair = client, socket.create_connection((host, port))
                    threading.Thread(target=_serve, args=(proxy, *pair, changing), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield proxy, server.getsockname()[1]
        finally:
            for thread in proxy.late:
                thread.join()
            server.shutdown(socket.SHUT_RDWR)


def _serve(proxy: Proxy, client: socket.socket, upstream: socket.socket, changing: tuple[bytes, ...]) -> None:
    with client, upstream, suppress(OSError):
        while True:
            for ready in select.select([client, upstream], [], [])[0]:
                sent = ready.recv(_BYTES)
                if not sent:
                    return
                if ready is upstream:
                    client.sendall(sent)
                    continue
                is_changing = any(word in sent for word in changing)
                match proxy.meets() if is_changing else "":
                    case "":
                        upstream.sendall(sent)
                    case "closed after it":
                        upstream.sendall(sent)
                        upstream.recv(_BYTES)
                        return
                    case "late":
                        proxy.late.append(threading.Thread(target=_late, args=(upstream.dup(), sent)))
                        proxy.late[-1].start()
                        return
                    case _:
                        return


def _late(upstream: socket.socket, request: bytes) -> None:
    with upstream, suppress(OSError):
        time.sleep(LATE_SECONDS)
        upstream.sendall(request)
        upstream.recv(_BYTES)
