"""Suites: the expectations that the rows of a table must meet. One suite is made from the table's definition.

Users can add suites in files. Such a file has the name `<database>.<table>` with the suffix .yml, .yaml or .json; the
name can have globs as in `tables.include`. The file has a suite in the format of Great Expectations: `{expectations:
[{type, kwargs, severity}]}`.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lakeingest import disk
from lakeingest.config.quality import Quality
from lakeingest.config.tables import Tables
from lakeingest.config.yaml_mistake import yaml_mistake
from lakeingest.config.yaml_text import read_yaml
from lakeingest.core.tables.column_choice import HASHED
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.errors import ConfigError, UsageError
from lakeingest.quality import great_expectations as library

SCHEMA = "schema"  # the name of the suite that is made from the definition
ROW_COUNT = "expect_table_row_count_to_equal"
_NUMBERS = {Kind.INT32, Kind.INT64, Kind.UINT64, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE}
_DIGITS_MAX = 38  # the digits of Spark's largest decimal: Spark cannot compare with a bound of more digits
_KEYS = {"name", "expectations", "meta", "notes", "id"}  # the keys that a user's file may have
COLUMN_KEYS = ("column", "column_A", "column_B", "column_list")  # the keys of an expectation's kwargs that name columns
_SIZED = {"char", "varchar", "binary", "varbinary"}  # the types with a greatest length

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Suite:
    """A list of expectations with a name. Each expectation is a document `{type, kwargs, …}`."""

    name: str
    expectations: tuple[Document, ...]


def default_suite(schema: TableSchema, rows: int) -> Suite:
    """The suite of a table's definition, which every exact copy of the table meets.

    It expects `rows` rows, a unique key, and values within the limits of the columns' types.
    """
    if len(schema.key) == 1:
        unique = _expectation("expect_column_values_to_be_unique", column=schema.key[0])
    else:
        unique = _expectation("expect_compound_columns_to_be_unique", column_list=list(schema.key))
    of_columns: list[Document] = []
    for column in schema.lake_columns:
        of_columns += _column_expectations(column, required=column.name in schema.key)
    return Suite(SCHEMA, (_expectation(ROW_COUNT, value=rows), unique, *of_columns))


def user_suites(quality: Quality, table: TableId) -> tuple[Suite, ...]:
    """The users' suites for the table.

    Raises ConfigError if a suite cannot be read, or if it has SQL that `quality.sql` does not allow.
    """
    return tuple(_read_suite(quality, path) for path in _suite_files(quality) if _tables_of(path, [table]))


def finding(quality: Quality, tables: Sequence[TableId] | None) -> str | None:
    """The faults of users' suites, as one text; None without a fault.

    A suite has a fault if it cannot be read, or if its file names no copied table. `tables` are the copied tables. If
    `tables` is None, names of files are not checked. Great Expectations is imported only if a suite exists.
    """
    try:
        files = _suite_files(quality)
    except ConfigError as error:
        return str(error)
    faults: list[str] = []
    for path in files:
        try:
            _read_suite(quality, path)
        except ConfigError as error:
            faults.append(str(error))
            continue
        if tables is not None and not _tables_of(path, tables):
            faults.append(
                f"{path} names no table that is copied; call it <database>.<table>{path.suffix}, or remove it"
            )
    return "; ".join(faults) or None


def unknown_columns(quality: Quality, schemas: Mapping[TableId, TableSchema]) -> str | None:
    """The columns that users' suites name and their tables do not have, as one text; None without such columns.

    Suites that cannot be read are passed over, because `finding` reports them.
    """
    faults: list[str] = []
    with suppress(ConfigError):  # the folder of suites cannot be read
        for path in _suite_files(quality):
            tables = _tables_of(path, list(schemas))
            if not tables:  # the suite is not read, because that would import Great Expectations
                continue
            with suppress(ConfigError):
                suite = _read_suite(quality, path)
                for table in tables:
                    faults += _unknown_columns(path, suite, schemas[table])
    return "; ".join(faults) or None


def about_rows(suites: Sequence[Suite]) -> tuple[tuple[Suite, ...], list[str]]:
    """The suites with only their expectations about single rows, and a text for each expectation that is left out.

    A suite without such an expectation is left out, too.
    """
    kept: list[Suite] = []
    left_out: list[str] = []
    for suite in suites:
        are_kept = [library.is_about_rows(library.expectation(document)) for document in suite.expectations]
        numbered = list(zip(suite.expectations, are_kept, strict=True))
        if expectations := tuple(document for document, is_kept in numbered if is_kept):
            kept.append(Suite(suite.name, expectations))
        left_out += [f"{document['type']} of {suite.name}" for document, is_kept in numbered if not is_kept]
    return tuple(kept), left_out


def folder_of_suites(quality: Quality) -> Path:
    """The folder of the suites. If pipeline.yml names none, the default folder is made, for this user alone.

    Raises UsageError if it cannot be made, or if pipeline.yml names a folder that is not there.
    """
    if quality.folder is None:
        try:
            disk.make_folder(quality.default_folder, disk.PRIVATE)
        except OSError as error:
            raise UsageError(f"{quality.default_folder} cannot be made: {error.strerror}") from error
        return quality.default_folder
    if not quality.folder.is_dir():
        raise UsageError(f"quality.suites: there is no folder {quality.folder}; make it, or leave the key out")
    return quality.folder


def write_suite(quality: Quality, table: TableId, tables: Sequence[TableId], text: str) -> Path:
    """Write a suite of a table to a new file in the folder of suites, for this user alone. Returns its path.

    The default folder is made if it is missing. Raises UsageError as `folder_of_suites` does, if the file exists or
    cannot be written, or if the name of the file would also match another one of the copied `tables`.
    """
    name = _file_name(table)
    if (matched := _tables_of(Path(name), tables)) != [table]:
        raise UsageError(f"{name} would be a suite of {', '.join(map(str, matched))}; write the file yourself")
    path = folder_of_suites(quality) / name
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(
            f"{path} exists already and is not overwritten; move it away, or copy what you need"
        ) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    return path


def _file_name(table: TableId) -> str:
    """The name of the file of a table's suite. A character that the name cannot have becomes a glob for it."""

    def glob(name: str, unusable: str) -> str:
        """A pattern that the name matches: `?` for each character that a file's name, or a pattern, cannot have."""
        signs = (f"[{sign}]" if sign in "*?[" else sign for sign in name)  # in brackets, a sign stands for itself
        return "".join("?" if sign in unusable or not sign.isprintable() else sign for sign in signs)

    database = glob(table.database, "/.")  # a pattern is divided at its first dot
    if database.startswith("re:"):  # else the name would be a regular expression
        database = f"?{database[1:]}"
    return f"{database}.{glob(table.name, '/')}.yml"


def _expectation(kind: str, **kwargs: Any) -> Document:
    return {"type": kind, "kwargs": kwargs}


def _column_expectations(column: Column, *, required: bool) -> Iterator[Document]:
    """Yield the expectations about a column: no NULL, and the limits of its type.

    The limits are the members of an ENUM, a greatest length, or the bounds of a number. `required`: the column is part
    of the key, so it has no NULL even if its type allows NULL.
    """
    if required or not column.nullable:
        yield _expectation("expect_column_values_to_not_be_null", column=column.name)
    if column.choice == HASHED:  # the limits of its type are not those of hashes
        return
    if column.source_type.name == "enum":
        # a lenient sql_mode stores an unknown member as '', so '' is expected, too
        if column.has_exact_members:  # else the texts of the members are not known
            yield _expectation("expect_column_values_to_be_in_set", column=column.name, value_set=[*column.members, ""])
        return
    if column.source_type.name in _SIZED:
        size = column.source_type.size
        yield _expectation("expect_column_value_lengths_to_be_between", column=column.name, max_value=size)
        return
    bounds: dict[str, int] = {}
    if column.kind is Kind.DECIMAL:
        digits = column.precision - column.scale  # before the decimal point; `bound` has one digit more
        if digits < _DIGITS_MAX:
            # the bound itself passes, because values are compared as doubles: the largest value can be rounded to it
            bound = 10**digits
            bounds = {"min_value": -bound, "max_value": bound}
    if column.kind in _NUMBERS and column.source_type.unsigned:
        bounds["min_value"] = 0
    if bounds:
        yield _expectation("expect_column_values_to_be_between", column=column.name, **bounds)


def _suite_files(quality: Quality) -> list[Path]:
    """The files of users' suites; none if pipeline.yml names no folder. Raises ConfigError if it cannot be read."""
    folder = quality.folder
    if folder is None:
        return []
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in {".yml", ".yaml", ".json"})
    except OSError as error:
        raise ConfigError(
            f"quality.suites: {folder}: {error.strerror}; make the folder, or leave the key out"
        ) from error


def _tables_of(path: Path, tables: Sequence[TableId]) -> list[TableId]:
    """The tables among `tables` that the name of a suite's file matches."""
    return Tables(include=(path.stem,)).select(tables)


def _read_suite(quality: Quality, path: Path) -> Suite:
    """The suite in a file. Raises ConfigError if it cannot be read, or if an expectation cannot be evaluated."""
    try:
        text = path.read_text(encoding="utf-8")
        doc = json.loads(text) if path.suffix == ".json" else read_yaml(text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:  # its own text has several lines
        raise ConfigError(f"{path} cannot be read: {yaml_mistake(error)}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(doc, dict) or not isinstance(doc.get("expectations"), list) or not doc["expectations"]:
        raise ConfigError(f"{path} is no suite: wanted `expectations`, a list of `type` and `kwargs`")
    if unknown := doc.keys() - _KEYS:
        raise ConfigError(f"{path}: unknown key {', '.join(map(str, unknown))}; known are {', '.join(sorted(_KEYS))}")
    numbered = enumerate(doc["expectations"], 1)
    return Suite(path.name, tuple(_parse_expectation(quality, path, number, written) for number, written in numbered))


def _parse_expectation(quality: Quality, path: Path, number: int, written: Any) -> Document:
    """The document of an expectation without its id; `written` is what the file has as its expectation `number`.

    Raises ConfigError if Great Expectations refuses the expectation, or if it has a `$PARAMETER` or forbidden SQL.
    """
    if not isinstance(written, dict):
        raise ConfigError(f"{path}: expectation {number} is no `type` and `kwargs`")
    # the id is only valid in the project from which the expectation was exported
    document = {str(key): value for key, value in written.items() if key != "id"}
    name = f"{path}: expectation {number}, {document.get('type', 'without type')}"
    try:
        expectation = library.expectation(document)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error
    if "$PARAMETER" in str(document["kwargs"]):
        raise ConfigError(f"{name}: parameters have no values here; write the value itself")
    if quality.sql != "allow" and (parameters := library.sql_of(expectation)):
        raise ConfigError(
            f"{name}: {', '.join(parameters)} is SQL, which can read the files and the secrets of a run; set"
            " quality: {sql: allow} if you trust who writes these suites"
        )
    return document


def _unknown_columns(path: Path, suite: Suite, schema: TableSchema) -> Iterator[str]:
    """Yield a line for each expectation of the suite that names columns which the table does not have."""
    columns = {column.name for column in schema.lake_columns}
    for number, document in enumerate(suite.expectations, 1):
        kwargs = document["kwargs"]
        values = [kwargs[key] for key in COLUMN_KEYS if key in kwargs]  # each is a name or a list of names
        names = [name for value in values for name in _as_list(value)]
        if unknown := [name for name in names if name not in columns]:
            yield (
                f"{path}: expectation {number}, {document['type']}: {schema.table} has no column"
                f" {', '.join(map(str, unknown))}"
            )


def _as_list(names: Any) -> list[Any]:
    return names if isinstance(names, list) else [names]
