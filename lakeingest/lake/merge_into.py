"""The text of Spark's MERGE INTO, as all formats use it. Changes have the column DELETED."""

from collections.abc import Sequence

from lakeingest.core.change import DELETED
from lakeingest.core.keys import quote


def merge_into(
    target: str, changes: str, names: Sequence[str], key: Sequence[str], deleted: str = DELETED, within: str = ""
) -> str:
    """The statement that upserts and deletes the rows of `changes` in `target`, which has the columns `names`.

    The column `deleted` says which changes delete their row; if it is one of the table's columns, no change does.
    `within` is a condition that each row of `t` with a changed key meets, so that files without such rows are not read.
    The clauses exclude one another, because Hudi drops the delete if two apply.
    """
    columns = [quote(name) for name in names]
    on = " AND ".join([*(f"t.{quote(name)} = c.{quote(name)}" for name in key), *([within] if within else [])])
    delete, stays = (
        ("", "") if deleted in names else (f" WHEN MATCHED AND c.{deleted} THEN DELETE", f" AND NOT c.{deleted}")
    )
    return (
        f"MERGE INTO {target} t USING {changes} c ON {on}{delete}"
        f" WHEN MATCHED{stays} THEN UPDATE SET {', '.join(f't.{name} = c.{name}' for name in columns)}"
        f" WHEN NOT MATCHED{stays} THEN INSERT ({', '.join(columns)})"
        f" VALUES ({', '.join(f'c.{name}' for name in columns)})"
    )
