"""A proxy that loses answers: what was asked for is done, and who asked is never told."""

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import SplitResult, urlsplit

_PIECE = 1 << 16


@contextmanager
def losing(endpoint: str, share: float, seed: int = 7) -> Iterator[str]:
    """The endpoint of a proxy before another one, which loses this share of the answers to PUT requests."""
    parts = urlsplit(endpoint)
    chance = random.Random(seed)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=_forward, args=(client, parts, share, chance), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def _forward(client: socket.socket, server: SplitResult, share: float, chance: random.Random) -> None:
    asked = {"put": False}
    upstream = socket.create_connection((server.hostname, server.port))

    def up() -> None:
        with suppress(OSError):
            while piece := client.recv(_PIECE):
                if piece[:4] in {b"PUT ", b"GET ", b"HEAD", b"DELE", b"POST"}:
                    asked["put"] = piece[:4] == b"PUT "
                upstream.sendall(piece)
        with suppress(OSError):
            upstream.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=up, daemon=True).start()
    with suppress(OSError):
        while piece := upstream.recv(_PIECE):
            if asked["put"] and chance.random() < share:
                break
            client.sendall(piece)
    for one in (client, upstream):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
