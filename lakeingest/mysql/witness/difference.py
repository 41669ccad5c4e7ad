"""Compares the row images of a stretch with the change rows that the fast decoder has made of it."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lakeingest.core.proofs.audit import differing_columns
from lakeingest.core.proofs.witness import Difference
from lakeingest.core.tables import change
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import UnsupportedValue
from lakeingest.mysql.witness.readable import LOST
from lakeingest.mysql.witness.stretch import Image, Stretch
from lakeingest.mysql.witness.values import column_array
from lakeingest.rows import INSTANT


def first_difference(schema: TableSchema, rows: pa.Table, stretch: Stretch) -> Difference | None:
    """The first difference in a table; None if the decoders agree.

    `rows`: the table's change rows from the stretch's start up to the transaction `stretch.last`, in order. Columns of
    which the library cannot make a value are noted in `stretch.unread`.
    """
    table = schema.table
    images = stretch.images.get(table, [])
    if stretch.passed:
        rows = rows.filter(pa.array([place not in stretch.passed for place in _places(rows)], pa.bool_()))
    if table in stretch.cut:  # there may be more images, which were not read
        rows = rows.slice(0, len(images))
    our_count, their_count = rows.num_rows, len(images)
    differing = _first_differing(schema, rows.slice(0, their_count), images[:our_count], stretch)
    if differing is None and our_count == their_count:
        return None
    # without a row that differs, the first difference is at the first row that only one decoder has
    index, what, our_value, their_value = differing or (min(our_count, their_count), "", None, None)
    our_places = _places(rows)
    their_places = [image.place for image in images]
    place = min([*our_places[index : index + 1], *their_places[index : index + 1]])  # one of the two may have ended
    counts = our_places.count(place), their_places.count(place)
    if counts[0] != counts[1]:  # then the rows after the missing image are compared with wrong ones
        file, pos = place
        return Difference(table, f"the transaction {file}:{pos}", "the number of row images", *counts)
    return Difference(table, str(images[index].at), what, our_value, their_value)  # equal counts: both have the row


def _first_differing(
    schema: TableSchema, rows: pa.Table, images: Sequence[Image], stretch: Stretch
) -> tuple[int, str, Any, Any] | None:
    """The index of the first row that differs, its first differing part, and the two values of this part; else None.

    A part is a column, or a part of the row's origin. Notes in `stretch.unread` which columns are not compared.
    """
    if not images:
        return None
    expected: list[tuple[str, str, pa.Array]] = [
        ("the file", change.FILE, pa.array([image.place[0] for image in images], pa.int64())),
        ("the place", change.POS, pa.array([image.place[1] for image in images], pa.int64())),
        ("the kind of change", change.KIND, pa.array([int(image.kind) for image in images], pa.int8())),
        ("the commit time", change.COMMITTED_AT, pa.array([image.committed_at for image in images], INSTANT)),
        ("the GTID", change.GTID, pa.array([image.gtid for image in images], pa.string())),
    ]
    lost: list[tuple[int, str]] = []  # the first lost value of each column: the index of its row, and the column
    names = stretch.columns[schema.table]
    for name, values in zip(names, zip(*(image.values for image in images), strict=True), strict=True):
        lost += [(index, name) for index, value in enumerate(values) if value is LOST][:1]
        held = [None if value is LOST else value for value in values]
        try:
            expected.append((f"column {name}", name, column_array(schema.column(name), held, str(schema.table))))
        except UnsupportedValue as error:
            stretch.unread[str(error)] += len(images)
    found = []  # for each part that differs, its first difference: the row's index, the part's order, and so on
    for order, (what, name, wanted) in enumerate(expected):
        made = rows[name].combine_chunks()
        if wanted.equals(made):
            continue
        for index, (theirs, ours) in enumerate(zip(wanted.to_pylist(), made.to_pylist(), strict=True)):
            if differing_columns({name: theirs}, {name: ours}):  # not `!=`: here NaN equals NaN
                found.append((index, order, what, ours, theirs))
                break
    # a lost value is ordered after the parts of its row that were compared
    found += [(index, len(expected), f"column {name}", rows[name][index].as_py(), LOST) for index, name in lost]
    if not found:
        return None
    index, _, what, ours, theirs = min(found, key=lambda one: one[:2])
    return index, what, ours, theirs


def _places(rows: pa.Table) -> list[tuple[int, int]]:
    """The place of each change row's transaction."""
    return list(zip(rows[change.FILE].to_pylist(), rows[change.POS].to_pylist(), strict=True))
