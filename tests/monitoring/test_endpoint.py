"""The port: each request gets the figures of its moment, whoever else is connected, and waiting costs nothing."""

import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from lakeingest.monitoring.endpoint import Endpoint
from lakeingest.monitoring.exposition import CONTENT_TYPE, Exposition
from tests.monitoring.test_exposition import figures_of_all_events, samples


def free_port(address: str = "127.0.0.1") -> int:
    """A port that nobody has."""
    with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET) as free:
        port: int = free.getsockname()[1]
    return port


@pytest.fixture
def spent() -> list[float]:
    """The CPU seconds of each answer."""
    return []


@pytest.fixture
def port(spent: list[float]) -> Iterator[int]:
    """A port that gives the figures of a run."""
    exposition = Exposition("nightly", figures_of_all_events(time.time()))
    number = free_port()
    endpoint = Endpoint("127.0.0.1", number, exposition.text, CONTENT_TYPE, spent.append)
    yield number
    began = time.monotonic()
    endpoint.close()
    assert time.monotonic() - began < 1
    with pytest.raises(OSError, match="refused"):
        asked(number)


def asked(port: int) -> str:
    """What a request gets."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"] == CONTENT_TYPE
        return str(answer.read().decode())


def test_a_request_is_answered_with_the_age_at_that_moment(port: int, spent: list[float]) -> None:
    """The age grows between two requests, although nothing was measured."""
    ages = []
    for _ in range(2):
        ages.append(samples(asked(port))["lakeingest_freshness_seconds", "shop.orders"])
        time.sleep(0.1)
    assert ages[1] > ages[0] + 0.05
    assert len(spent) == 4  # of the thread that listens, and of the thread of each client
    assert all(0 < seconds < 0.1 for seconds in spent)


def test_a_client_that_says_nothing_holds_up_no_other(port: int) -> None:
    """Nor does one that is gone, or talks nonsense."""
    with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as talks:
        talks.sendall(b"GET /metrics HTTP/1.1\r\nHost: here\r\n")  # and no end
        for request in (b"", b"\r\n\r\n", b"x" * 100_000, b"\xff\x00\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port)) as other:
                other.sendall(request)
        assert "lakeingest_rows" in asked(port)


def test_a_slow_client_gets_its_whole_answer(spent: list[float]) -> None:
    """Its request comes in pieces, and it reads more slowly than the answer is written. Others do not wait for it."""
    large, number = b"x" * 20_000_000, free_port()
    endpoint = Endpoint("127.0.0.1", number, lambda: large, CONTENT_TYPE, spent.append)
    try:
        with (
            socket.create_connection(("127.0.0.1", number)) as slow,
            socket.create_connection(slow.getpeername()) as read,
        ):
            read.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")  # and nobody reads yet
            for piece in (b"GET /metrics ", b"HTTP/1.1\r\nHost: here\r\n", b"\r\n"):
                time.sleep(0.1)
                slow.sendall(piece)
            began = time.monotonic()
            with urlopen(f"http://127.0.0.1:{number}/metrics", timeout=10) as answer:
                assert answer.read() == large
            assert time.monotonic() - began < 2
            for client in (slow, read):
                with client.makefile("rb") as file:
                    head, _, body = file.read().partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.0 200 OK")
                assert body == large
    finally:
        endpoint.close()


def test_only_the_figures_can_be_had(port: int) -> None:
    """HEAD gets no body, and another method is refused."""
    client = HTTPConnection("127.0.0.1", port, timeout=10)
    client.request("HEAD", "/metrics")
    answer = client.getresponse()
    assert (answer.status, answer.read(), int(answer.headers["Content-Length"]) > 1_000) == (200, b"", True)
    with pytest.raises(HTTPError, match="501"):
        urlopen(Request(f"http://127.0.0.1:{port}/metrics", data=b"{}"), timeout=10)


def test_a_port_that_nobody_asks_takes_no_time(port: int) -> None:
    """It does not look again and again whether it has to end."""
    asked(port)
    time.sleep(0.1)
    before = _wakes()
    time.sleep(1.2)
    assert _wakes() == before


def _wakes() -> list[str]:
    """How often the thread that listens was woken, as the system counts it."""
    [number] = [thread.native_id for thread in threading.enumerate() if "_listen" in thread.name]
    lines = Path(f"/proc/self/task/{number}/status").read_text().splitlines()
    return [line for line in lines if line.startswith("voluntary_ctxt_switches")]


def test_a_port_that_is_taken_is_refused() -> None:
    """The run says so, and goes on without it."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        Endpoint("127.0.0.1", taken.getsockname()[1], bytes, CONTENT_TYPE, lambda _: None)


def test_an_address_of_version_6_is_listened_at() -> None:
    """And closes like the others."""
    try:
        number = free_port("::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    endpoint = Endpoint("::1", number, lambda: b"figures", CONTENT_TYPE, lambda _: None)
    with urlopen(f"http://[::1]:{number}/metrics", timeout=10) as answer:
        assert answer.read() == b"figures"
    began = time.monotonic()
    endpoint.close()
    assert time.monotonic() - began < 1
