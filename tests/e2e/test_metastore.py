"""A pipeline whose Hudi tables are registered in a metastore of Hive."""

from pathlib import Path

import pytest

from lakeingest.config import Target
from lakeingest.errors import CatalogAway
from lakeingest.lake.hudi.metastore import Metastore
from lakeingest.lake.metastore import TimedClient
from tests.e2e.pipe import Pipe
from tests.servers.hive_server import hive_server

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark, pytest.mark.formats("hudi")]


@pytest.mark.long("needs another server, a metastore of Hive")
def test_a_table_is_registered_by_the_run_after_one_that_could_not(
    pipe: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first publish and a later one meet a metastore that fails; each time the next run registers the table.

    The source has no change for it. Once the table is registered, another run commits nothing.
    """

    def fails(*_: object) -> None:
        raise CatalogAway("the metastore does not answer")

    with hive_server(tmp_path / "metastore") as uri:
        doc = {"format": "hudi", "warehouse": str(tmp_path / "lake"), "catalog": {"type": "hive", "uri": uri}}
        pipe.config = pipe.config.model_copy(update={"target": Target.model_validate(doc)})
        pipe.sql(f"CREATE TABLE {pipe.database}.t (id INT PRIMARY KEY, v TEXT)")
        synced = ""
        for key in (1, 2):
            pipe.sql(f"INSERT INTO {pipe.database}.t VALUES ({key}, 'a')")
            with monkeypatch.context() as patch:
                patch.setattr(Metastore, "register", fails)
                with pytest.raises(CatalogAway):
                    pipe.run()
            found = TimedClient.of({"uri": uri}).entry(pipe.database, "t")
            assert (found.parameters["last_commit_time_sync"] if found else "") == synced
            pipe.run()
            before, synced = synced, _synced(uri, pipe)
            assert synced > before
            pipe.assert_equal("t")
        pipe.run()
        assert _synced(uri, pipe) == synced


def _synced(uri: str, pipe: Pipe) -> str:
    """The last commit that the metastore knows."""
    return str(TimedClient.of({"uri": uri}).entry(pipe.database, "t").parameters["last_commit_time_sync"])
