"""`schema` of pipeline.yml: whether copies follow the DDL of their tables."""

from typing import Literal

from lakeingest.config.frozen import Frozen


class SchemaChanges(Frozen):
    """Whether copies follow the DDL of their tables: evolve | approve (each is approved first) | freeze (they stop).

    `dropped`: columns that the source drops stay in the copy, NULL in all rows (keep), or are dropped there (drop).
    """

    changes: Literal["evolve", "approve", "freeze"] = "evolve"
    dropped: Literal["keep", "drop"] = "keep"
