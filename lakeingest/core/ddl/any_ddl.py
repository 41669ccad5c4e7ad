"""The columns whose values may change through any DDL of their table, even if the DDL does not name them."""

from lakeingest.core.tables.generation import may_change_later
from lakeingest.core.tables.schema import FLOATS, TableSchema


def changed_by_any_ddl(schema: TableSchema) -> tuple[str, ...]:
    """The names in the copy of two kinds of columns.

    1. Generated columns that a server may compute to other values (`core.tables.generation`).
    2. Columns of the types FLOAT(M,D) and DOUBLE(M,D). MariaDB changes a column to such a type without checking the
       values, and cuts values that are too large whenever it copies the table later (measured, MariaDB 11.4).
    """
    types = {column.source_name.casefold(): column.source_type.name for column in schema.columns}
    computed = [
        column.name
        for column in map(schema.column, schema.generated)
        if may_change_later(column.generation, types, column.source_type.name)
    ]
    may_be_cut = [column.name for column in schema.columns if column.kind in FLOATS and column.source_type.size]
    return tuple(dict.fromkeys([*computed, *may_be_cut]))
