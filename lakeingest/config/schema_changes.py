"""`schema` of pipeline.yml: whether copies follow the DDL of their tables."""

from typing import Literal

from lakeingest.config.frozen import Frozen


class SchemaChanges(Frozen):
    """`changes` says what a copy does at DDL of its table, `dropped` what happens to a column that the source drops.

    `changes`: the copy follows the DDL (`evolve`), follows it once a person has approved it (`approve`), or stops
    (`freeze`). `dropped`: the column stays in the copy, with NULL in all rows (`keep`), or is dropped there, too
    (`drop`).
    """

    changes: Literal["evolve", "approve", "freeze"] = "evolve"
    dropped: Literal["keep", "drop"] = "keep"
