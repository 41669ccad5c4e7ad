"""Evidence: the rows that failed a gate, as they were when they left a copy. They are for people, and never applied.

quarantine/<database>.<table>__quarantine/<place>-<digest>.parquet   rows that left the copy in one commit

Any program that reads Parquet can read the folder. A file has the columns of the copy, and the columns that are
defined below. It is stored before the commit that removes its rows from the copy. Its name is made from the place and
the keys. So if a run is killed between file and commit, the next run replaces the file, and no row is stored twice.
`RELEASED_AT` is NULL as long as the key may be in quarantine.

The folder is no table of the catalog: rows stay readable there after DDL that they would not fit, and no table of the
source can have its name.
"""

import datetime as dt
import hashlib
import io
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lakeingest.core.binlog.position import Place
from lakeingest.core.file_names import file_name
from lakeingest.core.tables.keys import Key
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import StateUnreadable
from lakeingest.files.file import File
from lakeingest.state import store

if TYPE_CHECKING:  # most runs store and read no evidence
    import pyarrow as pa

FOLDER, ENDING = "quarantine", "__quarantine"
KEY, EXPECTATIONS = "_lakeingest_quarantine_key", "_lakeingest_quarantine_expectations"
POSITION = "_lakeingest_quarantine_position"  # the position in the binlog as of which the row failed
QUARANTINED_AT, RELEASED_AT = "_lakeingest_quarantined_at", "_lakeingest_released_at"
# The change in the binlog that has brought the row; NULL if the row was read from the table, or if the spool does not
# have the change any more
CHANGE_KIND, CHANGE_PLACE = "_lakeingest_change_kind", "_lakeingest_change_place"
CHANGE_GTID, CHANGE_COMMITTED_AT = "_lakeingest_change_gtid", "_lakeingest_change_committed_at"


class Evidence:
    """The evidence of all tables, for the run that holds the lease.

    It knows which tables have evidence, so a table without evidence needs no request to the store. `assert_held` is
    called just before each write: it raises LeaseLost if another run took over.
    """

    def __init__(self, state: File, assert_held: Callable[[], None]) -> None:
        self._state, self._assert_held = state, assert_held
        with store.storage_errors(state / FOLDER, "read"):
            self._stored = set((state / FOLDER).subfolders())
        self._closed: dict[TableId, frozenset[Key]] = {}  # by table, the keys for which `close` was called last

    def store(self, table: TableId, place: Place, rows: "pa.Table") -> None:
        """Store rows durably, with their values as of `place`. They have the column KEY; their RELEASED_AT is NULL.

        Raises StorageFailed if the file cannot be written.
        """
        folder = folder_of(self._state, table)
        digest = hashlib.sha256(json.dumps(sorted(rows[KEY].to_pylist())).encode()).hexdigest()[:16]
        self._assert_held()
        with store.storage_errors(folder):
            folder.make_folder()
            (folder / f"{place}-{digest}.parquet").put(_contents(rows))
        self._stored.add(folder.name)
        self._closed.pop(table, None)  # the next `close` must look at the new file, too

    def close(self, table: TableId, listed: Collection[Key]) -> None:
        """Note in RELEASED_AT, as of now, that the table's keys which are not `listed` have left the quarantine.

        Readers see that already. Raises StorageFailed if a file cannot be written, and StateUnreadable if a file is
        damaged.
        """
        keys = frozenset(listed)
        folder = folder_of(self._state, table)
        if folder.name not in self._stored or self._closed.get(table) == keys:
            return
        kept = {key_text(key) for key in keys}
        for path, rows in _files(folder):
            released = rows[RELEASED_AT].to_pylist()
            now = dt.datetime.now(dt.UTC)
            closed = [
                now if moment is None and key not in kept else moment
                for key, moment in zip(rows[KEY].to_pylist(), released, strict=True)
            ]
            if closed != released:
                self._assert_held()
                with store.storage_errors(path):
                    path.put(_contents(_with_released(rows, closed)))
        self._closed[table] = keys


def folder_of(state: File, table: TableId) -> File:
    """The folder with the evidence of a table."""
    return state / FOLDER / file_name(f"{table}{ENDING}")


def key_text(key: Key) -> str:
    """A key as the text in the column KEY: its values in a JSON array."""
    return json.dumps(list(key))


def read_evidence(state: File, table: TableId) -> list[Mapping[str, object]]:
    """The rows of a table's evidence, the oldest place first; none if it has no evidence.

    Raises StateUnreadable if a file is damaged, and StorageFailed if the folder cannot be listed.
    """
    return [row for _, rows in _files(folder_of(state, table)) for row in rows.to_pylist()]


def drop_released(state: File, table: TableId) -> int:
    """Remove the files whose rows have all left the quarantine. Returns the number of these rows.

    This is safe while a run is at work, because a run replaces only files with rows whose RELEASED_AT is NULL. Raises
    as `read_evidence`, and StorageFailed if a file cannot be removed.
    """
    dropped = 0
    for path, rows in _files(folder_of(state, table)):
        if rows[RELEASED_AT].null_count == 0:
            with store.storage_errors(path):
                path.delete()
            dropped += rows.num_rows
    return dropped


def _files(folder: File) -> Iterator[tuple[File, "pa.Table"]]:
    """Each file of a folder, with its rows, in the order of the names: these begin with the place."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with store.storage_errors(folder, "read"):
        paths = folder.listed("*.parquet")
    for path in paths:
        try:
            yield path, pq.read_table(io.BytesIO(path.read()))
        except FileNotFoundError:  # somebody has dropped it since the listing
            continue
        except (OSError, ValueError, pa.ArrowException) as error:
            raise StateUnreadable(
                f"{path}, which has rows that are in quarantine, cannot be read: {error}; restore or remove the file"
            ) from error


def _contents(rows: "pa.Table") -> bytes:
    """The bytes of a Parquet file with these rows."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(rows, sink)
    return sink.getvalue()


def _with_released(rows: "pa.Table", moments: Sequence[dt.datetime | None]) -> "pa.Table":
    """The rows with these `moments` in the column RELEASED_AT."""
    import pyarrow as pa

    field = rows.schema.field(RELEASED_AT)
    return rows.set_column(rows.schema.get_field_index(RELEASED_AT), field, pa.array(moments, field.type))
