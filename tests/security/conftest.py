"""What the tests of servers, logins and protocol share."""

from pathlib import Path

import pytest

from tests.security.certificates import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that the system does not know."""
    return Authority.new(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def impostor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for the right address, of an authority that nobody has chosen."""
    return Authority.new(tmp_path_factory.mktemp("impostor")).server("evil", "127.0.0.2")
