"""Where files of tables are, and how they are written in an object store."""

import time
from collections.abc import Callable

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from lakeingest.config import Target
from lakeingest.config.catalogs import Catalog
from lakeingest.config.place import Place
from lakeingest.demo.s3 import LocalS3
from lakeingest.lake.iceberg.storage.durable import DurableFileIO
from tests.faults.spoiling import Proxy, proxied
from tests.servers.stores import storage_of, stored_in

PART = 16 << 20
BURST_SECONDS = 2.0


@pytest.mark.parametrize(
    "path",
    [
        "/a/b.parquet",
        "/",
        "//host/a",
        "/a b",
        "/ü☃/`c`",
        "/a#b",
        "/a?b",
        "/a%20b",
        "/a;b",
        "/a\tb",
        "/[a",
        "/a\n",
        "",
        "x",
    ],
)
@pytest.mark.parametrize("scheme", ["file://", "file:", "s3://", "hdfs://", "", "FILE://", " file://"])
def test_a_location_is_parsed_as_by_pyiceberg(scheme: str, path: str) -> None:
    """Most locations are plain paths of this machine, and need no parser of URLs."""

    def parsed(parse: Callable[[str], tuple[str, str, str]]) -> tuple[str, str, str] | str:
        try:
            return parse(f"{scheme}{path}")
        except ValueError as error:
            return str(error)

    assert parsed(DurableFileIO.parse_location) == parsed(PyArrowFileIO.parse_location)


class Overloaded(Proxy):
    """Says so from the first request on, for some time."""

    dropped = frozenset({"connection", "expect"})  # the name of the host is signed
    until = 0.0

    def meets(self, *_: object) -> str:
        """An excuse, until the time is over."""
        self.until = self.until or time.monotonic() + BURST_SECONDS
        return "503 before it" if time.monotonic() < self.until else ""


class Observed(Proxy):
    """Writes down each request."""

    dropped = frozenset({"connection", "expect"})  # the name of the host is signed

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.requests: list[str] = []

    def meets(self, method: str, path: str, _: dict[str, str]) -> str:
        """No fault."""
        self.requests.append(f"{method} {path.partition('?')[2].partition('=')[0]}".strip())
        return ""


def file_io(s3: LocalS3, endpoint: str) -> DurableFileIO:
    """What a table's files are written with."""
    target = Target(
        warehouse=Place.of(f"s3://{s3.bucket}/durable"),
        storage=storage_of(s3, endpoint),
        catalog=Catalog.model_validate({"type": "rest", "uri": "http://nobody"}),
    )
    return DurableFileIO(target.pyiceberg_properties())


@pytest.mark.parametrize(
    ("size", "requests"), [(1000, ["PUT"]), (PART, ["POST uploads", "PUT partNumber", "POST uploadId"])]
)
def test_a_small_file_is_one_request(s3: LocalS3, size: int, requests: list[str]) -> None:
    """A killed process leaves nothing of it; an upload in parts, which a large file is, would stay unfinished."""
    with proxied(s3.endpoint, Observed) as (proxy, endpoint):
        assert isinstance(proxy, Observed)
        io = file_io(s3, endpoint)
        with io.new_output(f"s3://{s3.bucket}/durable/{size}").create(overwrite=True) as out:
            out.write(b"x" * size)
        assert sorted(set(proxy.requests)) == sorted(requests)
        with io.new_input(f"s3://{s3.bucket}/durable/{size}").open() as found:
            assert found.read() == b"x" * size


@pytest.mark.long("takes seconds")
def test_a_store_that_is_overloaded_for_a_moment_is_asked_again(s3: LocalS3) -> None:
    """By the client of tables, and by the one of the state."""
    with proxied(s3.endpoint, Overloaded) as (_, endpoint):
        io = file_io(s3, endpoint)
        with io.new_output(f"s3://{s3.bucket}/durable/late").create() as out:
            out.write(b"here")
        assert io.new_input(f"s3://{s3.bucket}/durable/late").exists()
    with proxied(s3.endpoint, Overloaded) as (_, endpoint):
        file = stored_in(s3, endpoint) / "late"
        file.put(b"here")
        assert file.get()[0] == b"here"
