"""A port at which the figures can be asked for by HTTP. While nobody asks, it takes no CPU time.

The servers of Python's library wake up twice a second, and parse each header as that of a letter. For a run that waits,
this would be more than all other metrics together.
"""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

MOST_BYTES = 64 * 1024  # of a request
SOON_SECONDS = 0.05  # how long a client may take before it gets a thread of its own
WAIT_SECONDS = 10.0  # how long a client may then take to send its request, or to take the answer
_END = b"\r\n\r\n"


class Endpoint:
    """A port that answers each GET and HEAD with a text, and then closes the connection.

    One thread answers all clients that are quick. Another one, for each of the others, waits for it.
    """

    def __init__(
        self, address: str, port: int, answer: Callable[[], bytes], content_type: str, spent: Callable[[float], None]
    ) -> None:
        """Listen. `spent` gets the CPU seconds of each answer, in the thread that has given it. Raises OSError."""
        [(family, _, _, _, there), *_] = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
        self._answer, self._content_type, self._spent = answer, content_type, spent
        self._listener = socket.create_server(there[:2], family=family)
        self._is_open = True
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more."""
        self._is_open = False
        with suppress(OSError):  # the thread waits for a connection, so it gets one
            socket.create_connection(self._listener.getsockname()[:2], WAIT_SECONDS).close()
        self._thread.join(WAIT_SECONDS)
        self._listener.close()

    def _listen(self) -> None:
        while self._is_open:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # the client is gone already, or this process has no file descriptor left
                time.sleep(0.1)
                continue
            self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        """Answer the client, or leave it to a thread as soon as it has to be waited for."""
        began = time.thread_time()
        connection.settimeout(SOON_SECONDS)
        try:
            request = connection.recv(MOST_BYTES)
        except TimeoutError:
            request = b""
        except OSError:
            connection.close()
            return
        if _END not in request:
            threading.Thread(target=self._wait_for, args=(connection, request), daemon=True).start()
        else:
            whole = self._response(request)
            try:
                rest = whole[connection.send(whole) :]
            except OSError:  # the client does not read, or is gone: the thread will know
                rest = whole
            if rest:
                threading.Thread(target=_send, args=(connection, rest), daemon=True).start()
            else:
                connection.close()
        self._spent(time.thread_time() - began)

    def _wait_for(self, connection: socket.socket, request: bytes) -> None:
        """Answer a client whose request is not complete yet."""
        with suppress(OSError), connection:
            connection.settimeout(WAIT_SECONDS)
            until = time.monotonic() + WAIT_SECONDS
            while _END not in request:
                part = connection.recv(MOST_BYTES)
                request += part
                if not part or len(request) > MOST_BYTES or time.monotonic() > until:
                    return
            connection.sendall(self._response(request))
        self._spent(time.thread_time())  # this thread has done nothing else

    def _response(self, request: bytes) -> bytes:
        method, _, _ = request.partition(b" ")
        is_asked = method in {b"GET", b"HEAD"}
        body = self._answer() if is_asked else b""
        head = (
            f"HTTP/1.1 {'200 OK' if is_asked else '405 Method Not Allowed'}\r\nAllow: GET, HEAD\r\n"
            f"Content-Type: {self._content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == b"HEAD" else body)


def _send(connection: socket.socket, rest: bytes) -> None:
    with suppress(OSError), connection:
        connection.settimeout(WAIT_SECONDS)
        connection.sendall(rest)
