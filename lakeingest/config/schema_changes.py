"""`schema` of pipeline.yml: whether copies follow the DDL of their tables."""

from typing import Literal

from lakeingest.config.frozen import Frozen


class SchemaChanges(Frozen):
    """What a copy does at DDL of its table.

    `changes`: the copy follows the DDL (`evolve`), follows it once a person has approved it (`approve`), or stops
    (`freeze`).
    `dropped`: a column that the source drops stays in the copy, with NULL in all rows (`keep`), or is dropped there,
    too (`drop`).
    """

    changes: Literal["evolve", "approve", "freeze"] = "evolve"
    dropped: Literal["keep", "drop"] = "keep"
