"""A real S3 server, once for all tests of files, and a proxy before it that loses answers."""

from collections.abc import Iterator

import pytest

from lakeingest.demo.s3 import LocalS3
from lakeingest.files.file import File
from tests.catalog_servers import object_store
from tests.files.losing import losing
from tests.stores import KINDS, in_memory, stored_in


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalS3]:
    """A running S3 server."""
    with object_store(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest) -> File:
    """A new folder of each kind."""
    if request.param == "memory":
        return in_memory()
    if request.param == "s3":
        return stored_in(request.getfixturevalue("s3"))
    made = request.getfixturevalue("tmp_path") / "folder"
    made.mkdir()
    found: File = made
    return found


@pytest.fixture
def losing_endpoint(s3: LocalS3) -> Iterator[str]:
    """The address of the server behind a proxy that loses 30 % of the answers to puts."""
    with losing(s3.endpoint, 0.3) as endpoint:
        yield endpoint
