"""`target` of pipeline.yml: the lake format, the catalog and the folders of the copies."""

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator, model_validator

from lakeingest.config.catalog_kinds import embedded_file, kind_of
from lakeingest.config.catalogs import Catalog
from lakeingest.config.duration import Duration
from lakeingest.config.frozen import Frozen
from lakeingest.config.location import Location, is_of_one_table
from lakeingest.config.place import Place
from lakeingest.config.storage import Storage
from lakeingest.config.stores import store_of
from lakeingest.config.table_properties import Properties
from lakeingest.core.file_names import segment
from lakeingest.core.tables.schema import TableId

if TYPE_CHECKING:
    from typing import Self

FormatName = Literal["iceberg", "hudi"]
MergeName = Literal["row_delta", "statement"]
TABLES_AT_ONCE = 8  # fewer than the ten connections that PyIceberg's client of a REST catalog keeps open
_HUDI_FOLDERS = frozenset({".hoodie"})  # Hudi stores a table's metadata in a folder of this name
_UNSAFE = re.compile(r"[^\w$.~-]+")
_FIELD = re.compile(r"\{(\w*)\}")
SHARDS = "__lakeingest_"  # in the namespaces of shards, between the name of their target and their database


class History(Frozen):
    """How long a published commit can still be read after a later commit has replaced it.

    `keep`: the time for which a published commit is retained.
    `least`: how many of the last published commits are retained, even for longer than `keep`.
    `most`: how many commits are retained at most, even if more are younger than `keep`. Iceberg writes the list of all
    commits with every commit, so a long list makes every commit slow.
    `readers`: the time for which the files of a commit are kept after the commit is no longer retained, so that queries
    that have begun on this commit can end.
    """

    keep: Duration = timedelta(days=5)
    least: int = Field(default=20, ge=1)
    most: int = Field(default=500, ge=1)
    readers: Duration = timedelta(hours=6)

    @model_validator(mode="after")
    def _assert_order(self) -> "Self":
        if self.least > self.most:
            raise ValueError(f"least ({self.least}) is more than most ({self.most})")
        return self


class Target(Frozen):
    """Where and how copies are stored, and for how long their older commits can be read."""

    format: FormatName = "iceberg"
    catalog: Catalog = Catalog()
    storage: Storage = Storage()
    warehouse: Place = Field(default="./warehouse", validate_default=True)
    table: str = "{database}.{table}"
    global_key: bool = False
    properties: Properties = Field(default={})
    location: Location | None = None
    merge: Literal["auto", MergeName] = "auto"
    publish_every: Literal["auto"] | Duration = "auto"
    publish_together: bool = False
    history: History = History()

    @field_validator("location")
    @classmethod
    def _assert_folder_per_table(cls, location: str | None) -> str | None:
        if location is not None and not is_of_one_table(location):
            raise ValueError("it needs {database} and {table}, because each table has a folder of its own")
        return location

    @model_validator(mode="after")
    def _assert_can_publish_together(self) -> "Self":
        if self.publish_together and self.catalog.type in {"glue", "hive"}:
            raise ValueError(
                f"publish_together: a catalog of type {self.catalog.type} cannot commit several tables at once;"
                " leave it out"
            )
        return self

    @property
    def way_of_merging(self) -> MergeName:
        """How changes are merged: the key `merge`, or what `auto` stands for."""
        return "row_delta" if self.merge == "auto" else self.merge

    @property
    def tables_at_once(self) -> int:
        """For how many tables the lake may be read, or changed, at the same time.

        The number is 1 in three cases: on a disk, where a commit waits for the processor, not for a store; with Hive,
        whose client serves one thread; and with merges by Spark, which only the run's own thread may start.
        """
        is_on_disk = self.warehouse.scheme is None
        one_thread = is_on_disk or self.catalog.type == "hive" or self.way_of_merging == "statement"
        return 1 if one_thread else TABLES_AT_ONCE

    @property
    def catalog_file(self) -> Path:
        """The SQLite file of the embedded catalog."""
        return embedded_file(self.warehouse)

    @property
    def catalog_place(self) -> str:
        """A text for messages that says where the catalog is: its file, its URI without a password, or its type."""
        if self.catalog.is_embedded:
            return str(self.catalog_file)
        return self.catalog.without_secrets or f"the catalog of type {self.catalog.type}"

    @property
    def is_shared(self) -> bool:
        """Whether several tables of the source have one target: they are its shards."""
        return set(_FIELD.findall(self.table)) != {"database", "table"}

    def is_shard(self, table: TableId) -> bool:
        """Whether the copy of a table is a shard. Tables of the ledger are no shards."""
        return self.is_shared and not table.is_reserved

    def _name_of_copy(self, table: TableId) -> str:
        """The pattern for the namespace and the name of a table's copy. It gives each shard a name of its own."""
        if not self.is_shared:
            return self.table
        return "{database}.{table}" if table.is_reserved else self._name_of_shard

    @property
    def _name_of_shard(self) -> str:
        """The pattern of a shard's namespace and name. The shards of each database have their own namespace."""
        return f"{self.table.replace('.', '_')}{SHARDS}{{database}}.{{table}}"

    def identifier(self, table: TableId) -> tuple[str, str]:
        """The namespace and the name of the copy of a table. If the copy is a shard, readers query another table."""
        return _filled(self._name_of_copy(table), table)

    def shown(self, table: TableId) -> tuple[str, str]:
        """The namespace and the name of the table in which readers find the rows of a table."""
        return _filled(self.table, table) if self.is_shard(table) else self.identifier(table)

    def source_of(self, namespace: str, name: str) -> TableId | None:
        """The source's table whose copy has this namespace and name; None if no copy can have them.

        A table of the ledger is no copy.
        """
        # NUL separates namespace and name, because both may have dots
        pattern = re.escape((self._name_of_shard if self.is_shared else self.table).replace(".", "\0", 1))
        for field in ("database", "table"):
            placeholder = re.escape("{" + field + "}")
            pattern = pattern.replace(placeholder, f"(?P<{field}>.+)", 1)
            pattern = pattern.replace(placeholder, f"(?P={field})")  # if the field comes again, it has the same text
        match = re.fullmatch(pattern, f"{namespace}\0{name}", re.DOTALL)
        table = None if match is None else TableId(match["database"], match["table"])
        return None if table is None or table.is_reserved else table

    def folder(self, table: TableId) -> Place:
        """The folder of a copy, in the warehouse.

        Two things are percent-encoded: characters that are not allowed in a file name or a URI, and the dots of names
        that have another meaning (`.`, `..` and `.hoodie`).
        """
        namespace, name = (segment(part, _UNSAFE, _HUDI_FOLDERS) for part in self.identifier(table))
        return self.warehouse / namespace / name

    def pyiceberg_properties(self) -> dict[str, str]:
        """The properties with which PyIceberg opens the catalog."""
        scheme, storage = self.warehouse.scheme, self.storage
        store_properties = {} if scheme is None else storage.properties_with(store_of(scheme).pyiceberg(storage))
        return store_properties | kind_of(self.catalog).pyiceberg(self.catalog, self.warehouse)


def _filled(pattern: str, table: TableId) -> tuple[str, str]:
    """The namespace and the name that a pattern gives to a table."""
    namespace, _, name = pattern.partition(".")  # before the fields are filled, because names may have dots
    fields = {"database": table.database, "table": table.name}
    return namespace.format(**fields), name.format(**fields)
