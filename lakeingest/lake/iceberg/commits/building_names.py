"""Under which names a catalog has tables that are being built."""

import time

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError

from lakeingest.lake.iceberg.catalogs.embedded import EmbeddedCatalog
from lakeingest.lake.iceberg.tables.naming import Name, beginning_of_names, built_names

_LISTED_SECONDS = 10.0  # a list of names is used for this time: a server may take seconds to list thousands


class BuildingNames:
    """The names for building in a catalog, which is asked for the names of a whole namespace at once."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._listed: dict[str, tuple[float, dict[str, list[str]]]] = {}  # by namespace: when, and its `built_names`

    def forget(self) -> None:
        """Ask the catalog again at the next call."""
        self._listed.clear()

    def of(self, own: Name) -> list[Name]:
        """The names under which the table with this own name is being built, as of some seconds ago at most."""
        namespace, name = own
        return [(namespace, built) for built in self._all_in(namespace).get(name, ())]

    def now(self, own: Name) -> list[Name]:
        """As `of`, but as of now.

        The embedded catalog is asked for this table alone: else each of thousands of new tables would list all others.
        """
        self.forget()
        if not isinstance(self._catalog, EmbeddedCatalog):
            return self.of(own)
        namespace, name = own
        found = built_names(self._catalog.names_beginning(namespace, beginning_of_names(name)))
        return [(namespace, built) for built in found.get(name, ())]

    def _all_in(self, namespace: str) -> dict[str, list[str]]:
        """The names for building in a namespace, by the own names of their tables. They are kept for some seconds."""
        now = time.monotonic()
        if (known := self._listed.get(namespace)) is not None:
            listed_at, names = known
            if now - listed_at <= _LISTED_SECONDS:
                return names
        try:
            identifiers = self._catalog.list_tables((namespace,))
        except NoSuchNamespaceError:
            identifiers = []
        names = built_names(name for *_, name in identifiers)
        self._listed[namespace] = now, names
        return names
