"""The partitions of a Hudi copy: in which folder a row is, and which DDL the partitions follow.

A copy with partitions has one more column at the end, PARTITION: a text that is never NULL, and is the name of the
row's folder. Hudi knows this column alone as the partition, whatever `partition_by` says. So no text of a path ever has
to be read back as a value of another column. Such reading would fail: Hudi would take '' for NULL, a path cannot have
every text, and a folder that was named after a column could not follow the column's new name.

A record key is unique only within its partition path. A key is in the same bucket in each partition, so a publish finds
the old rows of its changed keys by looking at one bucket of each partition.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.ddl.origins import Origins
from lakeingest.core.tables.partitioning import PartitionField, Transform, parse_all, refusal
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import PartitionsDiffer
from lakeingest.lake.staged.staging import Named

PARTITION = "_lakeingest_partition"  # the column, and the only one that Hudi knows as a partition
_NULL, _EMPTY = "NULL", "EMPTY"  # the texts of NULL and of ''
_MOST = 160  # the longest name of a folder; a longer one ends with a digest
_DIGEST = 32  # the hexadecimal digits of a digest
# Each byte of these characters becomes `~` and two digits. Readers of paths would decode `%`. A folder that begins
# with `_` or `.` is hidden from Spark, and `=` would separate a name of a column from its value
_CODED = re.compile(r"[^A-Za-z0-9_-]|^_")
_DIGITS: Mapping[Transform, int] = {Transform.YEAR: 4, Transform.MONTH: 7, Transform.DAY: 10, Transform.HOUR: 13}


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of a copy, by the present names of their columns. `earlier`: the names that each column had."""

    fields: tuple[PartitionField, ...] = ()
    earlier: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of_new(cls, fields: Sequence[PartitionField]) -> Self:
        """The partitions of a new copy."""
        return cls(tuple(fields), ((),) * len(fields))

    @classmethod
    def of(cls, named: Named) -> Self:
        """The inverse of the property `named`. Raises ValueError for anything else."""
        return cls(parse_all(text for text, *_ in named), tuple(tuple(earlier) for _, *earlier in named))

    @property
    def named(self) -> Named:
        """The partitions as a property of a commit has them: of each, its text and the earlier names of its column."""
        return tuple((str(field), *names) for field, names in zip(self.fields, self.earlier, strict=True))

    def assert_wanted(self, table: TableId, wanted: Sequence[PartitionField]) -> None:
        """Raises PartitionsDiffer unless these are the partitions that pipeline.yml asks for.

        `wanted` may name a column by its name in the copy, or by an earlier name.
        """
        is_same = len(wanted) == len(self.fields) and all(
            (ours.transform, ours.number) == (theirs.transform, theirs.number)
            and theirs.column in {ours.column, *names}
            for ours, names, theirs in zip(self.fields, self.earlier, wanted, strict=False)
        )
        if not is_same:
            raise PartitionsDiffer(
                f"{table}: pipeline.yml asks for {_listed(wanted)}, and its copy has {_listed(self.fields)}; set"
                " partition_by to what the copy has, or drop the copy to copy it again"
            )

    def after(self, schema: TableSchema, origins: Origins | None) -> "Partitions":
        """The partitions of the copy once all its rows are written anew with the columns of `schema`.

        `origins`: for each of these columns its name in the present copy, or None for a new column. Without `origins`,
        columns keep their names. Raises PartitionsDiffer if a column of the partitions is gone, or has a new type
        from which the partitions cannot be made.
        """
        old_names = {name: name for name in schema.names} if origins is None else origins
        new_names = {old: new for new, old in old_names.items() if old is not None}
        way_out = "set partition_by to columns that it has, and drop the copy to copy it again"
        fields = []
        for field, names in zip(self.fields, self.earlier, strict=True):
            if field.column not in new_names:
                all_names = ", ".join(sorted({field.column, *names}))
                raise PartitionsDiffer(
                    f"{schema.table}: its copy is divided by {all_names}, which DDL dropped or gave another type;"
                    f" {way_out}"
                )
            fields.append(replace(field, column=new_names[field.column]))
        if (reason := refusal(fields, schema)) is not None:
            raise PartitionsDiffer(f"{schema.table}: its copy is divided, and {reason}; {way_out}")
        # the old name of a renamed column becomes one of its earlier names
        earlier = tuple(
            names if old.column == new.column else tuple(dict.fromkeys((*names, old.column)))
            for old, new, names in zip(self.fields, fields, self.earlier, strict=True)
        )
        return Partitions(tuple(fields), earlier)


def parse_named(text: str) -> Named:
    """The partitions in a property of a commit. Raises ValueError for anything else."""
    doc = json.loads(text)
    if not isinstance(doc, list) or not all(isinstance(parts, list) for parts in doc):
        raise ValueError(f"{text} is no list of partitions")
    named = tuple(tuple(str(part) for part in parts) for parts in doc)
    Partitions.of(named)  # raises ValueError if a text is no partition
    return named


def with_partitions(rows: pa.Table, fields: Sequence[PartitionField]) -> pa.Table:
    """The rows with the column PARTITION; as they are if the copy has no partitions."""
    return rows.append_column(PARTITION, partition_texts(rows, fields)) if fields else rows


def by_partition(rows: pa.Table, fields: Sequence[PartitionField]) -> dict[str, pa.Table]:
    """The rows of each partition, in their order. Without partitions, all rows are of the partition ''."""
    if not fields:
        return {"": rows}
    encoded = partition_texts(rows, fields).dictionary_encode()
    numbers = encoded.indices.to_numpy()
    order = np.argsort(numbers, kind="stable")
    distinct, starts = np.unique(numbers[order], return_index=True)
    parts = np.split(order, starts[1:])  # the numbers of the rows of each partition
    names = [encoded.dictionary[int(number)].as_py() for number in distinct]
    # not strict: if there are no rows, `parts` has one empty part, and `names` has no name
    return {
        name: rows if len(names) == 1 else rows.take(pa.array(part)) for name, part in zip(names, parts, strict=False)
    }


def partition_texts(rows: pa.Table, fields: Sequence[PartitionField]) -> pa.Array:
    """The partition of each row: the texts of all fields, joined by a point; a long one is cut, with a digest."""
    texts = [_texts(rows[field.column].combine_chunks(), field) for field in fields]
    joined = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, ".")  # "." is the separator
    encoded = joined.dictionary_encode()
    cut = pa.array([_cut(text) for text in encoded.dictionary.to_pylist()], pa.string())
    return cut.take(encoded.indices)


def _texts(values: pa.Array, field: PartitionField) -> pa.Array:
    """The text of each value's partition."""
    if field.transform in _DIGITS:
        texts = _texts_of_times(values)
        rounded = pc.utf8_slice_codeunits(texts, 0, _DIGITS[field.transform])
        # A day and an hour have a blank between them, which the partition's name writes as "-".
        return pc.fill_null(pc.replace_substring(rounded, " ", "-"), _NULL)
    if pa.types.is_temporal(values.type):
        values = _texts_of_times(values)
    encoded = values.dictionary_encode()
    text_of = _TEXT_OF.get(field.transform, _identity)
    distinct = [text_of(value, field.number) for value in encoded.dictionary.to_pylist()]
    return pc.fill_null(pa.array(distinct, pa.string()).take(encoded.indices), _NULL)


def _texts_of_times(values: pa.Array) -> pa.Array:
    """Dates and times as texts: `2026-01-31`, `2026-01-31 12:00:00.000000`; in UTC if they are moments."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us"))  # of a moment, this drops the time zone and leaves the time in UTC
    return values.cast(pa.string())


def _identity(value: Any, _number: int) -> str:
    """The text of the value itself, in characters that a folder's name may have."""
    if isinstance(value, bytes):
        return value.hex() or _EMPTY
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    if isinstance(value, bool):
        text = text.lower()
    if not text:
        return _EMPTY
    coded = _CODED.sub(lambda match: _code(match[0]), text)
    # the texts 'NULL' and 'EMPTY' must not get the names of NULL and ''
    return _code(coded[0]) + coded[1:] if coded in {_NULL, _EMPTY} else coded


def _bucket(value: Any, number: int) -> str:
    """The text of the value's bucket, of `number` buckets."""
    contents = value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")
    return str(zlib.crc32(contents) % number)


def _truncate(value: Any, number: int) -> str:
    """The text, as `_identity` writes it, of the value cut to `number` characters or bytes.

    A number is rounded down to a multiple of `number`. Of a decimal, the integer that its digits form without the point
    is rounded down.
    """
    if isinstance(value, Decimal):
        exponent = int(value.as_tuple().exponent)
        unscaled = int(value.scaleb(-exponent))
        return _identity(Decimal(unscaled - unscaled % number).scaleb(exponent), 0)
    cut = value - value % number if isinstance(value, int) else value[:number]
    return _identity(cut, 0)


_TEXT_OF: Mapping[Transform, Callable[[Any, int], str]] = {
    Transform.BUCKET: _bucket,
    Transform.TRUNCATE: _truncate,
}


def _code(letter: str) -> str:
    """The letter as `~` and two digits for each of its bytes."""
    return "".join(f"~{byte:02X}" for byte in letter.encode(errors="surrogatepass"))


def _cut(text: str) -> str:
    """A text that is short enough for a folder's name."""
    if len(text) <= _MOST:
        return text
    # - 1: for the `~`
    return f"{text[: _MOST - _DIGEST - 1]}~{hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]}"


def _listed(fields: Sequence[PartitionField]) -> str:
    return f"the partitions {', '.join(map(str, fields))}" if fields else "no partitions"
