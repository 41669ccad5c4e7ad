"""MERGE INTO, the same statement for each format."""

from collections.abc import Sequence

from lakeingest.core.keys import quote

DELETED = "_lakeingest_deleted"


def merge_into(target: str, changes: str, names: Sequence[str], key: Sequence[str]) -> str:
    """The statement that upserts and deletes the rows of `changes`, which has these columns, in `target`.

    The clauses exclude one another: of two that hold, Hudi drops the delete.
    """
    columns = [quote(name) for name in names if name != DELETED]
    on = " AND ".join(f"t.{quote(name)} = c.{quote(name)}" for name in key)
    return (
        f"MERGE INTO {target} t USING {changes} c ON {on}"
        f" WHEN MATCHED AND c.{DELETED} THEN DELETE"
        f" WHEN MATCHED AND NOT c.{DELETED} THEN UPDATE SET {', '.join(f't.{name} = c.{name}' for name in columns)}"
        f" WHEN NOT MATCHED AND NOT c.{DELETED} THEN INSERT ({', '.join(columns)})"
        f" VALUES ({', '.join(f'c.{name}' for name in columns)})"
    )
