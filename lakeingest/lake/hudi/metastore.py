"""A metastore of Hive in which published tables are registered, so that readers find them by name.

Hudi's own HiveSyncTool registers a table, and later updates its columns and its last commit. The tool would replace a
table of the same name with another folder. So it runs only if the name is free, or belongs to a table with our folder.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lakeingest import config
from lakeingest.config.place import Place
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import OperatorNeeded
from lakeingest.files.file import File
from lakeingest.lake.errors import metastore_error, storage_errors
from lakeingest.lake.hudi.folder import location
from lakeingest.lake.hudi.partitions import PARTITION
from lakeingest.lake.hudi.table_form import extractor_of, has_partitions
from lakeingest.lake.refusals import not_ours

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakeingest.lake.metastore import TimedClient

_SYNC = "hoodie.datasource.hive_sync."
_LAST_COMMIT = "last_commit_time_sync"  # the parameter of a table in which the tool stores the last commit
_HADOOP = {"hive.metastore.client.socket.timeout": "60s"}  # 600 s by default


def _partition_options(divided: bool) -> dict[str, str]:  # noqa: FBT001 - one fact
    """The tool's options about partitions. `divided`: the table has partitions."""
    # without partitions, the tool wants another class than the one in the table's own properties
    extractor = extractor_of(divided=True) if divided else "NonPartitionedExtractor"
    options = {f"{_SYNC}partition_extractor_class": f"org.apache.hudi.hive.{extractor}"}
    fields = {f"{_SYNC}partition_fields": PARTITION} if divided else {}
    return options | fields


class Metastore:
    """The metastore of a target. If none is configured, nothing is registered, and every name is free."""

    def __init__(self, settings: config.Target) -> None:
        self._settings = settings
        self.is_configured = settings.catalog.type == "hive"

    def answers(self) -> bool:
        """True if a metastore is configured and answers; False if none is configured.

        Raises CatalogAway if the metastore does not answer.
        """
        if self.is_configured:
            self._ask(lambda client: client.ping())
        return self.is_configured

    def assert_ours(self, table: TableId) -> None:
        """Raises NotOurTable if the table's name belongs to a Hudi table in another folder, or to something else."""
        self._parameters(table)

    def is_up_to_date(self, table: TableId, instant: str) -> bool:
        """Whether the table is registered as of this commit; True without a metastore. Raises as `assert_ours`."""
        if not self.is_configured:
            return True
        return self._parameters(table).get(_LAST_COMMIT) == instant

    def register(self, table: TableId, folder: File, spark: "SparkSession") -> None:
        """Register the table in `folder` in the metastore, with its present columns and its last commit.

        Nothing is done if no metastore is configured. Raises NotOurTable as `assert_ours`.
        """
        if not self.is_configured:
            return
        self.assert_ours(table)
        namespace, name = self._settings.identifier(table)
        catalog = self._settings.catalog
        options = {
            f"{_SYNC}mode": "hms",
            f"{_SYNC}use_jdbc": "false",
            f"{_SYNC}metastore.uris": catalog.address,
            f"{_SYNC}database": namespace,
            f"{_SYNC}table": name,
            **_partition_options(has_partitions(folder)),
            f"{_SYNC}support_timestamp": "true",
            # a table that was copied again can have a column of another type, which a metastore refuses
            f"{_SYNC}recreate_table_on_error": "true",
            "hoodie.datasource.meta.sync.base.path": location(folder),
            # last, so that options of the user replace ours
            **{key: value for key, value in catalog.plain_properties.items() if key.startswith("hoodie.")},
        }
        # the user's properties that are no options of the tool are settings of the metastore's client
        hadoop = _HADOOP | {key: value for key, value in catalog.plain_properties.items() if key not in options}
        context: Any = spark.sparkContext
        jvm = context._jvm  # noqa: SLF001 - no public way
        properties = jvm.java.util.Properties()
        for key, value in options.items():
            properties.setProperty(key, value)
        conf = jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())  # noqa: SLF001
        for key, value in hadoop.items():
            conf.set(key, value)
        with storage_errors(str(folder), self._settings.catalog_place):
            tool = jvm.org.apache.hudi.hive.HiveSyncTool(properties, conf)
            try:
                tool.syncHoodieTable()
            finally:
                tool.close()

    def _parameters(self, table: TableId) -> dict[str, str]:
        """The table's parameters in the metastore; empty if the name is free, or if no metastore is configured.

        Raises NotOurTable as `assert_ours`.
        """
        entry = self._entry(table) if self.is_configured else None
        if entry is None:
            return {}
        parameters = dict(entry.parameters or {})
        entry_folder = Place.of(entry.sd.location or "").hadoop
        is_hudi = parameters.get("spark.sql.sources.provider") == "hudi"
        if not is_hudi or entry_folder != self._settings.folder(table).hadoop:
            name = ".".join(self._settings.identifier(table))
            raise not_ours(f"{name} in {self._settings.catalog_place}", table)
        return parameters

    def _entry(self, table: TableId) -> Any:
        """The metastore's entry with the table's name; None if there is none."""
        namespace, name = self._settings.identifier(table)
        return self._ask(lambda client: client.entry(namespace, name))

    def _ask(self, question: Callable[["TimedClient"], Any]) -> Any:
        """The result of `question`, which is called with a client of the metastore.

        A failure of the metastore is raised as one of our errors. Raises OperatorNeeded if the client's package is not
        installed.
        """
        address, catalog = self._settings.catalog_place, self._settings.catalog
        try:
            from lakeingest.lake.metastore import TimedClient
        except ModuleNotFoundError as error:
            raise OperatorNeeded(f"{address}: {error}; pip install 'lakeingest[hive]'") from error
        try:
            return question(TimedClient.of({"uri": catalog.address, **catalog.plain_properties}))
        except Exception as error:
            named_error = metastore_error(address, error)
            if named_error is None:
                raise
            raise named_error from error
