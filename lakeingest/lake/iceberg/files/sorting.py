"""The sort order of an Iceberg copy: how rows are sorted within each file that lakeingest writes.

Source: Iceberg's table specification, "Sorting". Readers skip row groups by the bounds of their columns, so files of a
sorted copy have smaller row groups. A property of the table has the columns as pipeline.yml names them, with their
field ids: so the order follows columns that are renamed. Each publish sets the order that pipeline.yml asks for. An
order that others set is left alone, and files are not sorted by it.

Nothing relies on the order of rows: a merge finds keys by the bounds of files and in their key columns.
"""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortOrder
from pyiceberg.table.sorting import SortField as OrderField
from pyiceberg.table.update import AddSortOrderUpdate, SetDefaultSortOrderUpdate, TableUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, FloatType, ListType

from lakeingest.core.tables.schema import TableId
from lakeingest.core.tables.sorting import SortField
from lakeingest.errors import DAMAGED, PartitionsDiffer

SORT_BY = "lakeingest.sort_by"  # property of a table: its order as pipeline.yml names it, with the columns' field ids
GROUP_ROWS = 50_000  # of a row group of a sorted file
_LAST_ADDED = -1  # in an update: the order that was added last, because a server may give it another id
_DIRECTIONS: Mapping[SortDirection, str] = {SortDirection.ASC: "ascending", SortDirection.DESC: "descending"}


def new_order(schema: Schema, fields: Sequence[SortField]) -> SortOrder:
    """The sort order of a new copy with these columns."""
    return _order([schema.find_field(field.column).field_id for field in fields], fields)


def marks_of_new(schema: Schema, fields: Sequence[SortField]) -> dict[str, str]:
    """The property of a new copy with this sort order; none for a copy that is not sorted."""
    ids = [schema.find_field(field.column).field_id for field in fields]
    return {SORT_BY: _mark(fields, ids)} if fields else {}


def follow_sort_by(transaction: Transaction, table: TableId, wanted: Sequence[SortField]) -> None:
    """Let this commit give the table the order that pipeline.yml asks for, if the table has another order.

    Without `wanted`, only an order that we have set is removed. Raises PartitionsDiffer as `_ids`.
    """
    metadata = transaction.table_metadata
    marked = metadata.properties.get(SORT_BY)
    if not wanted and marked is None:
        return
    ids = _ids(table, metadata, wanted)
    if updates := _updates(metadata, _order(ids, wanted)):
        transaction._stage(updates, ())  # noqa: SLF001 - an order changes no row, so nothing is asserted
    if not wanted:
        transaction.remove_properties(SORT_BY)
    elif marked != (mark := _mark(wanted, ids)):
        transaction.set_properties({SORT_BY: mark})


def assert_order_outlived(table: TableId, metadata: TableMetadata, new: Schema) -> None:
    """Raises PartitionsDiffer if a copy with these columns cannot have the sort order of `metadata` any more."""
    present = {column.field_id for column in new.fields}
    gone = [field.source_id for field in metadata.sort_order().fields if field.source_id not in present]
    if not gone:
        return
    names = sorted({column.name for schema in metadata.schemas for column in schema.fields if column.field_id in gone})
    raise PartitionsDiffer(
        f"{table}: its copy is sorted by {', '.join(names)}, which DDL dropped or gave another type; set sort_by to"
        " columns that it has, and take the order away by ALTER TABLE … WRITE UNORDERED in Spark"
    )


def order_of(metadata: TableMetadata) -> SortOrder | None:
    """The order by which our files are sorted; None if the copy is not sorted, or others have set another order."""
    order = metadata.sort_order()
    if SORT_BY not in metadata.properties or order.is_unsorted:
        return None
    columns = {column.field_id for column in metadata.schema().fields}
    is_ours = all(
        isinstance(field.transform, IdentityTransform) and field.null_order is NullOrder.NULLS_FIRST
        for field in order.fields
    )
    has_columns = all(field.source_id in columns for field in order.fields)
    return order if is_ours and has_columns else None


def sorted_rows(schema: Schema, order: SortOrder, rows: pa.Table) -> pa.Table:
    """The rows in this order. Rows that are equal in this order stay in their former order."""
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    keys: list[tuple[str, str]] = []
    for place, field in enumerate(order.fields):
        values = rows[schema.find_field(field.source_id).name]
        columns |= {f"is {place}": values.is_valid(), str(place): values}
        keys += [(f"is {place}", "ascending"), (str(place), _DIRECTIONS[field.direction])]  # False, so NULL, is first
    columns["row"] = pa.array(np.arange(rows.num_rows))
    indexes = pc.sort_indices(pa.table(columns), sort_keys=[*keys, ("row", "ascending")])
    return rows.take(indexes)


def _order(ids: Sequence[int], fields: Sequence[SortField]) -> SortOrder:
    """The sort order by the columns with these field ids; unsorted without columns."""
    if not fields:
        return UNSORTED_SORT_ORDER
    directions = [SortDirection.DESC if field.descending else SortDirection.ASC for field in fields]
    return SortOrder(
        *(
            OrderField(field_id, IdentityTransform(), direction, NullOrder.NULLS_FIRST)
            for field_id, direction in zip(ids, directions, strict=True)
        )
    )


def _mark(fields: Sequence[SortField], ids: Sequence[int]) -> str:
    """The value of the property SORT_BY."""
    return json.dumps([[str(field), field_id] for field, field_id in zip(fields, ids, strict=True)])


def _ids(table: TableId, metadata: TableMetadata, wanted: Sequence[SortField]) -> list[int]:
    """The field ids of the `wanted` columns.

    If `sort_by` has not changed since the order was set, it names the columns as they were called at that time.
    Raises PartitionsDiffer if a column does not exist, or cannot be compared.
    """
    present = {column.field_id: column for column in metadata.schema().fields}
    known = _known(metadata)
    names = {column.name: column.field_id for column in present.values()}
    if list(known) == [str(field) for field in wanted]:
        names = {field.column: known[str(field)] for field in wanted}
    else:  # a present name of a column counts more than a former one
        names = {field.column: known[str(field)] for field in wanted if str(field) in known} | names
    for field in wanted:
        column = present.get(names.get(field.column, -1))  # -1: no column has this id
        if column is None or isinstance(column.field_type, FloatType | DoubleType | ListType):
            what = "which is not a column of its copy" if column is None else f"which is {column.field_type} now"
            raise PartitionsDiffer(f"{table}: sort_by names {field.column}, {what}; set sort_by to columns that it has")
    return [names[field.column] for field in wanted]


def _known(metadata: TableMetadata) -> dict[str, int]:
    """The items of `sort_by` when the order was set, with their field ids; none if the property is damaged."""
    try:
        return {str(text): int(field_id) for text, field_id in json.loads(metadata.properties.get(SORT_BY, "[]"))}
    except DAMAGED:
        return {}


def _updates(metadata: TableMetadata, wanted: SortOrder) -> tuple[TableUpdate, ...]:
    """The updates that make `wanted` the table's order; none if the table has this order already."""
    if metadata.sort_order().fields == wanted.fields:
        return ()
    existing = next((order.order_id for order in metadata.sort_orders if order.fields == wanted.fields), None)
    if existing is not None:
        return (SetDefaultSortOrderUpdate.model_validate({"sort-order-id": existing}),)
    if wanted.is_unsorted:
        new, chosen = wanted, wanted.order_id  # 0, the id of no order in every table
    else:
        next_id = max((order.order_id for order in metadata.sort_orders), default=0) + 1
        new, chosen = wanted.model_copy(update={"order_id": next_id}), _LAST_ADDED
    return (
        AddSortOrderUpdate.model_validate({"sort-order": new}),
        SetDefaultSortOrderUpdate.model_validate({"sort-order-id": chosen}),
    )
