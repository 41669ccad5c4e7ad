"""Faults that random DDL has to find: each is put back into a function of the product."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import pytest

from lakeingest.config import Source
from lakeingest.core.ddl import lift, widening
from lakeingest.core.tables.default import Default, Value
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.mysql import connection, default_values, schema_reader
from lakeingest.mysql.preflight import foreign_key_rules, foreign_keys
from lakeingest.mysql.preflight.foreign_key_rules import Rules, ShownKey
from lakeingest.mysql.preflight.server import Server
from lakeingest.mysql.session import Pin
from lakeingest.mysql.wire import alter


@dataclass(frozen=True)
class Fault:
    """How it is put back, and a server where it shows."""

    put_back: Callable[[pytest.MonkeyPatch], None]
    flavor: Flavor = MYSQL


def _default_becomes(change: Callable[[Column, object], object]) -> Callable[[pytest.MonkeyPatch], None]:
    """The value of each default that a lift fills in is changed."""

    def put_back(patch: pytest.MonkeyPatch) -> None:
        read = default_values._read  # noqa: SLF001 - the place of the fault

        def changed(source: Source, schema: TableSchema, column: Column) -> Default | Value:
            found = read(source, schema, column)
            has_any = isinstance(found, Value) and found.value is not None
            return Value(change(column, found.value)) if has_any else found

        patch.setattr(default_values, "_read", changed)

    return put_back


def _six_digits(patch: pytest.MonkeyPatch) -> None:
    """A FLOAT has them, and is taken for the value of rows of before."""
    is_kept = lift._is_kept  # noqa: SLF001 - the place of the fault

    def shown(column: Column, value: object) -> object:
        return float(f"{value:.6g}") if column.kind is Kind.FLOAT else value

    _default_becomes(shown)(patch)
    patch.setattr(lift, "_is_kept", lambda column, value: column.kind is Kind.FLOAT or is_kept(column, value))


def _three_bytes(_: Column, value: object) -> object:
    return "".join(one if ord(one) <= 0xFFFF else "?" for one in value) if isinstance(value, str) else value


def _escaped_is_null(column: Column, value: object) -> object:
    is_escaped = isinstance(value, str) and any(one in value for one in "\\\n\0")
    return None if column.nullable and is_escaped else value


def _bits_are_null(column: Column, value: object) -> object:
    return None if column.nullable and column.source_type.name == "bit" else value


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
    patch.setattr(Column, "has_exact_members", property(lambda _: True))


def _generated_columns_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lift.Lift, "_refuse_if_generated_from", lambda _self, _changed: None)


def _computed_is_constant(patch: pytest.MonkeyPatch) -> None:
    """An expression is taken for its value of now."""
    read = schema_reader._default  # noqa: SLF001 - the place of the fault

    def default(row: dict[str, object], *, is_mariadb: bool) -> Default | Value:
        found = read(row, is_mariadb=is_mariadb)
        return Default.CONSTANT if found is Default.COMPUTED and not row["generation_expression"] else found

    patch.setattr(alter, "_is_constant", lambda _: True)
    patch.setattr(schema_reader, "_default", default)
    patch.setattr(alter, "_PLAIN", alter._PLAIN | {"UUID", "NOW", "CONCAT", "ID"})  # noqa: SLF001 - the same


def _is_not_pinned(*names: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Sessions have the server's values of these variables."""

    def put_back(patch: pytest.MonkeyPatch) -> None:
        pins_of = vars(connection)["pins_of"]  # perhaps one that lacks other pins

        def pins(greeting: str) -> tuple[Pin, ...]:
            return tuple(pin for pin in pins_of(greeting) if pin.name not in names)

        patch.setattr(connection, "pins_of", pins)

    return put_back


def _shown_keys_are_all(patch: pytest.MonkeyPatch) -> None:
    """What information_schema shows to a reader of REFERENTIAL_CONSTRAINTS is taken for all of it."""

    def known(server: Server, tables: Collection[TableId]) -> tuple[dict[ShownKey, Rules], frozenset[TableId]]:
        keys, _ = foreign_key_rules._shown_keys(server, tables)  # noqa: SLF001 - the place of the fault
        shown = foreign_key_rules._shown_rules(server, tables)  # noqa: SLF001 - the same
        return {key: shown[key.table, key.name] for key in keys if (key.table, key.name) in shown}, frozenset()

    patch.setattr(foreign_keys, "known_keys", known)


FAULTS: Mapping[str, Fault] = {
    "a default of FLOAT has six digits": Fault(_six_digits),
    "SERIAL fills 0": Fault(_serial_is_a_type),
    "a default has question marks": Fault(_default_becomes(_three_bytes)),
    "a default with a backslash, line feed or NUL is NULL": Fault(_default_becomes(_escaped_is_null), MARIADB_11_4),
    "a default of bits is NULL": Fault(_default_becomes(_bits_are_null), MARIADB_11_4),
    "a charset changes with another column": Fault(_is_not_looked_at("charset")),
    "generated columns stay as they are": Fault(_generated_columns_stay),
    "members have question marks": Fault(_members_are_as_shown),
    "members may change their order": Fault(_is_not_looked_at("source_type.members")),
    "a sign may change": Fault(_is_not_looked_at("source_type.unsigned")),
    "a text may become shorter": Fault(_is_not_looked_at("source_type.size")),
    "a fraction may become shorter": Fault(_is_not_looked_at("fraction")),
    "NULL may become NOT NULL": Fault(_is_not_looked_at("nullable")),
    "a default may be computed": Fault(_computed_is_constant),
    "sql_select_limit is the server's": Fault(_is_not_pinned("sql_select_limit")),
    "max_join_size is the server's": Fault(_is_not_pinned("max_join_size", "sql_big_selects")),
    "sql_mode is the server's": Fault(_is_not_pinned("sql_mode")),
    "time_zone is the server's": Fault(_is_not_pinned("time_zone")),
    "foreign keys that are not shown are none": Fault(_shown_keys_are_all, MARIADB_11_4),
}
