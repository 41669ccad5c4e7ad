"""The changelog that readers get: `changelog` of pipeline.yml."""

from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, model_validator

from lakeingest.config.duration import Duration
from lakeingest.config.frozen import Frozen
from lakeingest.core.tables.schema import RESERVED


class Changelog(Frozen):
    """How long changes are kept, and whether they are tables of the lake, too.

    `keep`: how long changes stay readable after they are published. `table`: also write the changes of each copy into a
    table beside it. `table_keep`: how long rows stay in these tables; None: as long as `keep`. `transactions`: the
    database of a table with a row for each transaction; None: there is none.
    """

    keep: Duration = timedelta(days=7)
    table: bool = False
    table_keep: Duration | None = None
    transactions: Annotated[str, Field(pattern=f"^{RESERVED}[a-z0-9_]*$")] | None = None

    @property
    def kept_in_table(self) -> timedelta:
        """How long rows stay in the tables that `changelog` adds to the lake beside the copies."""
        return self.keep if self.table_keep is None else self.table_keep

    @model_validator(mode="after")
    def _assert_has_tables(self) -> Self:
        """Raise ValueError if a key about the tables of the lake is set, although `table` is False."""
        for key in ("table_keep", "transactions"):
            if getattr(self, key) is not None and not self.table:
                raise ValueError(f"{key} needs table: true")
        return self
