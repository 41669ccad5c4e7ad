"""cloudevents: each line is an event of CloudEvents 1.0 in its JSON form; an update is one event.

`type` is `lakeingest.insert`, `update`, `delete`, `read` (a row of a copy, or one that was read again), `truncate` or
`ddl`. `data` has the row before and after, with the values of changelog-json; for DDL, the members of its line of
changelog-json. If an event is sent twice, both have the same `source` and `id`; no other event has this pair.
`sequence` is the position that `--since` takes. The positions sort as the events do.
"""

import json
from collections.abc import Iterator
from urllib.parse import quote

from lakeingest.commands.change_lines import is_truncate, json_text, positions
from lakeingest.commands.changelog_json import RowObjects, ddl_members, encoder, json_committed_at, origins
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.tables.schema import TableId
from lakeingest.pipeline.changelog.reading import Changed, Copied, Part
from lakeingest.spool.followed import Altered

_BEFORE, _AFTER, _GONE = "-U", "+U", "-D"
_NOTHING = "null"


class CloudEvents:
    """Writes events of the changelog named `name`, of a table of the pipeline named `pipeline`."""

    def __init__(self, name: str, pipeline: str, table: TableId) -> None:
        self._name = name
        parts = "/".join(quote(part, safe="") for part in (pipeline, table.database, table.name))
        self._source = f"/lakeingest/{parts}"
        self._objects = RowObjects()
        self._before: str | None = None  # the old row of an update whose new row is still to come

    def lines(self, part: Part) -> Iterator[str]:
        """An event for each insert, update, delete and read, or one event for DDL. The lines have no line ends.

        The old row of an update is kept until the new row comes, which may be in the next part.
        """
        if isinstance(part, Altered):
            [position] = positions(part, self._name)
            kind, gtid = "truncate" if is_truncate(part) else "ddl", json.dumps(part.followed.gtid)
            committed_at = json_committed_at(part.followed.committed_at)
            yield self._event(kind, position, position, None, committed_at, gtid, f"{{{ddl_members(part)}}}")
            return
        ops, times, gtids = origins(part)
        rows, keys, at = self._objects.of(part), _keys(part), positions(part, self._name)
        for op, row, key, position, time, gtid in zip(ops, rows, keys, at, times, gtids, strict=True):
            if op == _BEFORE:
                self._before = row
                continue
            old_row, self._before = self._before, None
            # an update has no old row if the old row was read before `--since`
            before = old_row if op == _AFTER and old_row is not None else _NOTHING
            if op == _GONE:
                kind, data = "delete", _images(row, _NOTHING)
            elif op == _AFTER:
                kind, data = "update", _images(before, row)
            else:
                kind, data = "read" if time == _NOTHING else "insert", _images(_NOTHING, row)
            name = self._name_of_copied(part, key) if isinstance(part, Copied) else position
            yield self._event(kind, name, position, key, time, gtid, data)

    def _name_of_copied(self, part: Copied, key: str) -> str:
        """The `id` of a row of a copy: these rows have one position, but each has another key."""
        return f"{ReadTo(part.place, copying=True, log=self._name)}:{key}"

    def _event(self, kind: str, name: str, position: str, key: str | None, time: str, gtid: str, data: str) -> str:
        """The event of a `kind`, whose `id` is `name`. `time`, `gtid` and `data` are JSON; null for no value.

        `key` is the key of the row; None for DDL.
        """
        subject = "" if key is None else f' "subject": {json_text(key)},'
        when = "" if time == _NOTHING else f' "time": {time},'
        transaction = "" if gtid == _NOTHING else f' "gtid": {gtid},'
        return (
            f'{{"specversion": "1.0", "id": {json_text(name)}, "source": {json_text(self._source)},'
            f' "type": "lakeingest.{kind}",{subject}{when} "sequence": "{position}",{transaction}'
            f' "datacontenttype": "application/json", "data": {data}}}'
        )


def _images(before: str, after: str) -> str:
    """The data of an event: the row before and after, as JSON."""
    return f'{{"before": {before}, "after": {after}}}'


def _keys(part: Copied | Changed) -> list[str]:
    """The key of each row, as a JSON array of its values."""
    columns = []
    for name in part.schema.key:
        encode = encoder(part.schema.column(name))
        columns.append([encode(value) for value in part.rows[name].to_pylist()])
    return [f"[{', '.join(values)}]" for values in zip(*columns, strict=True)]
