"""Faults that random DDL has to find: each is put back into a function of the product."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import pytest

from lakeingest.config import Source
from lakeingest.core import lift, widening
from lakeingest.core.default import Default, Value
from lakeingest.core.schema import Column, Kind, TableSchema
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.mysql import schema_reader
from lakeingest.mysql.default_values import with_default_values
from lakeingest.mysql.wire import alter
from lakeingest.pipeline import lifting


@dataclass(frozen=True)
class Fault:
    """How it is put back, and a server where it shows."""

    put_back: Callable[[pytest.MonkeyPatch], None]
    flavor: Flavor = MYSQL


def _default_becomes(change: Callable[[Column, object], object]) -> Callable[[pytest.MonkeyPatch], None]:
    """The value of each default that a lift fills in is changed."""

    def put_back(patch: pytest.MonkeyPatch) -> None:
        read = with_default_values

        def changed(source: Source, schema: TableSchema, names: Collection[str]) -> TableSchema:
            columns = (
                replace(one, default=Value(change(one, one.default.value)))
                if isinstance(one.default, Value) and one.default.value is not None
                else one
                for one in read(source, schema, names).columns
            )
            return replace(schema, columns=tuple(columns))

        patch.setattr(lifting, "with_default_values", changed)
        patch.setattr(lift, "_is_kept", lambda _column, _value: True)

    return put_back


def _six_digits(column: Column, value: object) -> object:
    return float(f"{value:.6g}") if column.kind is Kind.FLOAT else value


def _three_bytes(_: Column, value: object) -> object:
    return "".join(one if ord(one) <= 0xFFFF else "?" for one in value) if isinstance(value, str) else value


def _as_mariadb_shows_it(column: Column, value: object) -> object:
    is_escaped = isinstance(value, str) and any(one in value for one in "\\\n\0")
    return None if column.nullable and (is_escaped or isinstance(value, bytes)) else value


def _serial_is_a_type(patch: pytest.MonkeyPatch) -> None:
    """With a constant default."""
    read = schema_reader._default  # noqa: SLF001 - the place of the fault

    def default(row: dict[str, object], *, is_mariadb: bool) -> Default | Value:
        found = read(row, is_mariadb=is_mariadb)
        return Default.NONE if found is Default.NUMBERED else found

    patch.setattr(alter, "_TYPES", alter._TYPES | {"SERIAL"})  # noqa: SLF001 - the same
    patch.setattr(schema_reader, "_default", default)


def _is_not_looked_at(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """A property of columns does not decide whether a lift is exact."""
    return lambda patch: patch.setitem(widening.RULES, name, lambda _before, _after: True)


def _members_are_as_shown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Column, "has_true_members", property(lambda _: True))


def _generated_columns_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lift.Lift, "_assert_computed_from_none_of", lambda _self, _changed: None)


FAULTS: Mapping[str, Fault] = {
    "a default of FLOAT has six digits": Fault(_default_becomes(_six_digits)),
    "SERIAL fills 0": Fault(_serial_is_a_type),
    "a default has question marks": Fault(_default_becomes(_three_bytes)),
    "a default with a backslash, and one of bits, is NULL": Fault(_default_becomes(_as_mariadb_shows_it), MARIADB_11_4),
    "a charset changes with another column": Fault(_is_not_looked_at("charset")),
    "generated columns stay as they are": Fault(_generated_columns_stay),
    "members have question marks": Fault(_members_are_as_shown),
    "members may change their order": Fault(_is_not_looked_at("source_type.members")),
    "a sign may change": Fault(_is_not_looked_at("source_type.unsigned")),
    "a text may become shorter": Fault(_is_not_looked_at("source_type.size")),
    "a fraction may become shorter": Fault(_is_not_looked_at("fraction")),
    "NULL may become NOT NULL": Fault(_is_not_looked_at("nullable")),
}
