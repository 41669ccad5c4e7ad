"""A proxy before the S3 server, which loses answers."""

from collections.abc import Iterator

import pytest

from lakeingest.demo.s3 import LocalS3
from tests.faults.losing import losing


@pytest.fixture
def losing_endpoint(s3: LocalS3) -> Iterator[str]:
    """The address of the server behind a proxy that loses 30 % of the answers to puts."""
    with losing(s3.endpoint, 0.3) as endpoint:
        yield endpoint
