"""Hidden columns, which MariaDB adds to a table for each unique key that it keeps as a hash.

MariaDB keeps a unique key as a hash if the key is too long for an index, or was declared USING HASH. Rows in the binlog
have the hidden columns after all other columns; no query about the table shows the hidden columns.
Source: MariaDB, "Getting Started with Indexes", unique index; sql/sql_table.cc, make_unique_invisible_field_name.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import count, islice
from typing import Any

_NAME = re.compile(r"DB_ROW_HASH_[1-9]\d*")


def hidden_columns(columns: Collection[str], indexes: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The names of a table's hidden columns, in order: numbered from 1 on, without names that other columns have.

    `columns` are the names of the other columns. `indexes` are the table's rows in information_schema.STATISTICS, which
    has a row for each column of an index.
    """
    hash_keys = {
        str(row["index_name"]) for row in indexes if not int(row["non_unique"]) and row["index_type"] == "HASH"
    }
    taken = {name.upper() for name in columns}
    possible_names = (f"DB_ROW_HASH_{number}" for number in count(1))
    free_names = (name for name in possible_names if name not in taken)
    return tuple(islice(free_names, len(hash_keys)))


def is_hidden(name: str) -> bool:
    """Whether a column is a hidden column, by its name. The table's definition must not have the column."""
    return _NAME.fullmatch(name) is not None
