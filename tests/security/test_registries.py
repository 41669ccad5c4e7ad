"""Programs that come from registries are those that were released."""

import shutil
from pathlib import Path

import pytest

from lakeingest.demo import rest_catalog, s3
from lakeingest.errors import OperatorNeeded


def test_jars_of_the_demo_are_those_that_were_released(tmp_path: Path) -> None:
    """All that the REST catalog is started with, by names and contents."""
    jars, changed = rest_catalog._jar_folder(tmp_path, lambda _: None), tmp_path / "changed"  # noqa: SLF001
    rest_catalog.assert_released(jars)
    changed.mkdir()
    for jar in jars.iterdir():
        (changed / jar.name).symlink_to(jar)
    [one] = changed.glob("slf4j-simple-*")
    one.unlink()
    shutil.copy(next(changed.glob("slf4j-api-*")), one)
    with pytest.raises(OperatorNeeded, match="are not those that were released"):
        rest_catalog.assert_released(changed)


@pytest.mark.long("fetches Go")
def test_a_go_that_was_changed_builds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its hash is one of those that are known."""
    monkeypatch.setattr(s3, "_GO_SHA256", dict.fromkeys(s3._GO_SHA256, "0" * 64))  # noqa: SLF001
    with pytest.raises(OperatorNeeded, match=r"cannot be built: python.*Got +[0-9a-f]{64}"):
        s3._build(tmp_path, "example.org/any@v1.0.0", "any")  # noqa: SLF001
    assert not (tmp_path / "pypi" / "go").exists()
