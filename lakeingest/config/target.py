"""Where tables go: `target` of pipeline.yml."""

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
from lakeingest.core.schema import TableId

if TYPE_CHECKING:
    from typing import Self

FormatName = Literal["iceberg", "hudi"]
MergeName = Literal["row_delta", "statement"]
_OF_HUDI = frozenset({".hoodie"})  # the folder of a table's own files
_UNSAFE = re.compile(r"[^\w$.~-]+")


class History(Frozen):
    """How long a published commit can still be read after a later commit has replaced it.

    Commits are retained for `keep`. The last `least` published commits are always retained. At most `most` are, because
    Iceberg writes the whole list with every commit, so a longer list makes every commit slower. The files of a commit
    are kept for `readers` after it is no longer retained, so that queries that have begun on it can end.
    """

    keep: Duration = timedelta(days=5)
    least: int = Field(default=20, ge=1)
    most: int = Field(default=500, ge=1)
    readers: Duration = timedelta(hours=6)

    @model_validator(mode="after")
    def _in_order(self) -> "Self":
        if self.least > self.most:
            raise ValueError(f"least ({self.least}) is more than most ({self.most})")
        return self


class Target(Frozen):
    """Where tables go, and how long older commits can be read."""

    format: FormatName = "iceberg"
    catalog: Catalog = Catalog()
    storage: Storage = Storage()
    warehouse: Place = Field(default="./warehouse", validate_default=True)
    table: str = "{database}.{table}"
    properties: Properties = Field(default={})
    location: Location | None = None
    merge: Literal["auto", MergeName] = "auto"
    history: History = History()

    @field_validator("location")
    @classmethod
    def _has_a_folder_per_table(cls, location: str | None) -> str | None:
        if location is not None and not is_of_one_table(location):
            raise ValueError("it needs {database} and {table}, because each table has a folder of its own")
        return location

    @property
    def way_of_merging(self) -> MergeName:
        """How changes are merged, `auto` resolved."""
        return "row_delta" if self.merge == "auto" else self.merge

    @property
    def catalog_file(self) -> Path:
        """The SQLite file of the embedded catalog."""
        return embedded_file(self.warehouse)

    @property
    def catalog_place(self) -> str:
        """The catalog's name in messages: its file, or its URI without a password."""
        if self.catalog.is_embedded:
            return str(self.catalog_file)
        return self.catalog.without_secrets or f"the catalog of type {self.catalog.type}"

    def identifier(self, table: TableId) -> tuple[str, str]:
        """The namespace and the name of a table's target."""
        namespace, _, name = self.table.partition(".")  # a database's name may have a dot, too
        fields = {"database": table.database, "table": table.name}
        return namespace.format(**fields), name.format(**fields)

    def source_of(self, namespace: str, name: str) -> TableId | None:
        """The table whose target has this identifier; None if no table of a source can have it."""
        pattern = re.escape(self.table.replace(".", "\0", 1))
        for field in ("database", "table"):
            group = re.escape("{" + field + "}")
            pattern = pattern.replace(group, f"(?P<{field}>.+)", 1).replace(group, f"(?P={field})")
        match = re.fullmatch(pattern, f"{namespace}\0{name}", re.DOTALL)
        return None if match is None else TableId(match["database"], match["table"])

    def folder(self, table: TableId) -> Place:
        """The folder of a table. Characters that a file name or a URI may not have are percent-encoded.

        The dots of `.`, `..` and Hudi's own folder name are percent-encoded, too.
        """
        namespace, name = (segment(part, _UNSAFE, _OF_HUDI) for part in self.identifier(table))
        return self.warehouse / namespace / name

    def pyiceberg_properties(self) -> dict[str, str]:
        """The properties of PyIceberg's catalog."""
        scheme, storage = self.warehouse.scheme, self.storage
        store_properties = {} if scheme is None else storage.properties_with(store_of(scheme).pyiceberg(storage))
        return store_properties | kind_of(self.catalog).pyiceberg(self.catalog, self.warehouse)
