"""The text of Spark's MERGE INTO, which all formats use. The merged changes have the column DELETED."""

from collections.abc import Sequence

from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.keys import quote


def merge_into(
    target: str, changes: str, names: Sequence[str], key: Sequence[str], deleted: str = DELETED, within: str = ""
) -> str:
    """The statement that applies each change to the row of its key: the statement inserts, updates or deletes the row.

    `target` is the table, and `changes` a view with the changes. `names` are the columns of `target`, and `key` those
    of its key. A change whose column `deleted` is true deletes its row. But if `names` has the column `deleted`, the
    copy keeps deleted rows, and no change deletes a row.

    `within` is a condition that each row `t` of the target with a changed key meets. By it, Spark skips files without
    such rows. '': no condition. The WHEN clauses exclude one another, because Hudi would drop the delete if two of them
    applied to a row.
    """
    columns = [quote(name) for name in names]
    conditions = [f"t.{quote(name)} = c.{quote(name)}" for name in key]
    on = " AND ".join([*conditions, within] if within else conditions)
    keeps_deleted = deleted in names
    delete_clause = "" if keeps_deleted else f" WHEN MATCHED AND c.{deleted} THEN DELETE"
    if_not_deleted = "" if keeps_deleted else f" AND NOT c.{deleted}"
    return (
        f"MERGE INTO {target} t USING {changes} c ON {on}{delete_clause}"
        f" WHEN MATCHED{if_not_deleted} THEN UPDATE SET {', '.join(f't.{name} = c.{name}' for name in columns)}"
        f" WHEN NOT MATCHED{if_not_deleted} THEN INSERT ({', '.join(columns)})"
        f" VALUES ({', '.join(f'c.{name}' for name in columns)})"
    )
