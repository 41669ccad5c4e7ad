"""The Avro schema of a table, which each commit of Hudi carries. Hudi derives the same schema from Spark's types."""

import json
import re
from typing import Any

import pyarrow as pa

_NAMES = {
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.binary(): "bytes",
}
_LOGICAL = {
    pa.date32(): ("int", "date"),
    pa.timestamp("us"): ("long", "local-timestamp-micros"),
    pa.timestamp("us", "UTC"): ("long", "timestamp-micros"),
}


def avro_schema(table: str, columns: pa.Schema) -> str:
    """The Avro schema of the records of the table. Every column, and every element of a list, can be null."""
    name = _sanitized(table)
    record = f"hoodie.{name}.{name}_record"
    kinds = {field.name: _type(field.type, f"{record}.{field.name}") for field in columns}
    fields = [{"name": column, "type": ["null", kind], "default": None} for column, kind in kinds.items()]
    schema = {"type": "record", "name": f"{name}_record", "namespace": f"hoodie.{name}", "fields": fields}
    return json.dumps(schema, separators=(",", ":"))


def _type(kind: pa.DataType, namespace: str) -> Any:
    """The Avro type of an Arrow type. The type of a decimal has a name, which is unique within the `namespace`."""
    if kind in _LOGICAL:
        stored, logical = _LOGICAL[kind]
        return {"type": stored, "logicalType": logical}
    if pa.types.is_decimal(kind):
        decimal = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {"type": "fixed", "name": "fixed", "namespace": namespace, "size": _bytes(kind.precision), **decimal}
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _type(kind.value_type, namespace)]}
    return _NAMES[kind]


def _bytes(precision: int) -> int:
    """The number of bytes of a signed integer that holds every number with `precision` digits."""
    return (int(10**precision - 1).bit_length() + 8) // 8  # one bit more for the sign, rounded up to whole bytes


def _sanitized(name: str) -> str:
    """The name with `__` in place of each character that Avro does not allow, as Hudi writes it."""
    return re.sub(r"[^A-Za-z0-9_]", "__", re.sub(r"^[^A-Za-z_]", "__", name))
