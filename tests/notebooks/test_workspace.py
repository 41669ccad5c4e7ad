"""Where notebooks work: on a user's database they have a lake of their own, and change nothing."""

import json
from pathlib import Path

import pytest

from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError, UsageError
from lakeingest.notebook import Workspace, runbook
from lakeingest.notebook.workspace import CONFIG, ONE_TABLE, SOURCE

TABLE = TableId("city library", 'lent "books" 1.2 ☕ 📚')
SECRET = "pa55word"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline.yml of a user's that writes to stores, and tells others what it does."""
    doc = {
        "name": "mine",
        "source": {"host": "db", "user": "lake", "password": SECRET},
        "tables": {"include": ["*.*"], "exclude": ["*.lent*"], "options": {"*.*": {"chunk_rows": 7}}},
        "target": {"warehouse": "s3://company/lake", "catalog": {"type": "glue"}},
        "state": "s3://company/state",
        "quality": {"suites": "./rules"},
        "notify": {"webhook": "https://example.com/hook"},
        "metrics": {"textfile": "./metrics.prom"},
    }
    path = Path(tmp_path) / "pipeline.yml"
    path.write_text(json.dumps(doc))
    monkeypatch.setenv(CONFIG, str(path))
    monkeypatch.setenv(ONE_TABLE, f"{TABLE.database}.{TABLE.name}")
    return path


def test_practice_has_tables_and_state_of_its_own(mine: Path) -> None:
    """Of the user's pipeline only the source and the options of tables count, and one table is included."""
    before = mine.read_bytes()
    place = Workspace.practice()
    config = place.config
    [folder] = {Path(str(config.target.warehouse)).parent, Path(str(config.state)).parent}
    assert folder.is_dir()
    assert folder != mine.parent
    assert (config.name, config.source.host, config.target.catalog.type) == ("practice", "db", None)
    assert config.tables.select([TABLE, TableId("city library", "others")]) == [TABLE]
    assert config.tables.of(TABLE).chunk_rows == 7
    assert config.quality.folder == folder / "quality"
    assert place.make_suites_folder() == folder / "quality"
    assert (config.notify.webhook, config.metrics.is_set) == (None, False)
    assert SECRET not in repr(place)
    assert SECRET not in "".join(place.overrides)
    place.close()
    assert not folder.exists()
    assert mine.read_bytes() == before
    assert list(mine.parent.iterdir()) == [mine]


def test_a_source_of_the_users_is_never_written_to(mine: Path) -> None:
    """What would change it is left out, and says so; writers do not begin."""
    place = Workspace.practice()
    assert place.sql("DROP TABLE orders") == place.write(10) == "the source is yours: nothing was changed in it"
    with place.writing():
        pass
    assert not place.is_sample
    place.close()


def test_practice_needs_the_name_of_a_table(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole database would be copied otherwise."""
    monkeypatch.delenv(ONE_TABLE)
    with pytest.raises(UsageError, match=ONE_TABLE):
        Workspace.practice()


def test_onboarding_takes_a_file_or_a_source(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that exists is used as it is; for a new one, the source has to be named."""
    assert Workspace.onboarding().path == mine
    new = mine.with_name("new.yml")
    monkeypatch.setenv(CONFIG, str(new))
    with pytest.raises(UsageError, match=SOURCE):
        Workspace.onboarding()
    monkeypatch.setenv(SOURCE, "mysql://lake@db/erp")
    place = Workspace.onboarding()
    assert (place.path, place.url, place.overrides) == (new, "mysql://lake@db/erp", ())
    assert not new.exists()


def test_the_folder_of_suites_is_made_if_none_is_named(tmp_path: Path) -> None:
    """Beside pipeline.yml, where a run looks for it."""
    path = Path(tmp_path) / "pipeline.yml"
    path.write_text('{"name": "x", "source": {"host": "h", "user": "u"}, "tables": {"include": ["a.*"]}}')
    place = Workspace(path, None)
    assert place.make_suites_folder() == place.make_suites_folder() == path.parent / "quality"
    assert place.config.quality.folder == path.parent / "quality"


def test_only_a_copy_for_practice_is_damaged(mine: Path) -> None:
    """A pipeline of the user's is none."""
    place = Workspace.onboarding()
    with pytest.raises(UsageError, match="practice"):
        place.damage(None, None)  # type: ignore[arg-type] # it looks at neither


@pytest.mark.parametrize("error", ["GateFailed", UsageError("x")])
def test_a_runbook_is_a_page(error: LakeIngestError | str) -> None:
    """Of an error, or of its name."""
    page = runbook(error)
    assert page.startswith(f"# {error if isinstance(error, str) else 'UsageError'}\n")
    assert page._repr_markdown_() == page
