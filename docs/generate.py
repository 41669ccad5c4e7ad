"""The reference pages that are made from the code: `make docs` writes them, a test keeps them current.

Keys, values and defaults are those of the configuration's models, commands and options those of the command line, types
those of the lake formats. What a key means is in `keys.yml` beside this file, a line for each.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import yaml
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from lakeingest import Config, cli
from lakeingest.core.tables.schema import Column, Kind, SourceType
from lakeingest.lake.hudi.types import hudi_type
from lakeingest.lake.iceberg.files.types import iceberg_type
from lakeingest.monitoring.definitions import DEFINITIONS
from lakeingest.mysql import session
from tests.e2e.ddl_kinds import KINDS

DOCS = Path(__file__).parent
MADE = "<!-- Made by docs/generate.py: do not edit. -->\n"

# MySQL's types, what a column of them holds, and what a reader should know.
TYPES: tuple[tuple[str, Kind, str], ...] = (
    ("`tinyint`, `smallint`, `mediumint`, `int`", Kind.INT32, "also unsigned, except `int unsigned`"),
    ("`int unsigned`, `bigint`", Kind.INT64, ""),
    ("`bigint unsigned`", Kind.UINT64, ""),
    ("`decimal(p,s)` up to 38 digits", Kind.DECIMAL, "here `decimal(10,2)`"),
    ("`decimal(p,s)` of more than 38 digits", Kind.NUMERAL, "the number as text"),
    ("`float`", Kind.FLOAT, "the exact binary value"),
    ("`double`", Kind.DOUBLE, "the exact binary value"),
    ("`year`", Kind.INT32, "0000 is 0"),
    ("`date`", Kind.DATE, "for zero dates see `zero_dates` below"),
    ("`datetime(f)`", Kind.DATETIME, "no time zone"),
    ("`timestamp(f)`", Kind.TIMESTAMP, "an instant, in UTC"),
    ("`time(f)`", Kind.TIME, "MySQL's text, `-838:59:59` to `838:59:59`"),
    ("`char`, `varchar`, `tinytext` to `longtext`", Kind.STRING, "decoded from the column's charset"),
    (
        "`enum`, `set`",
        Kind.STRING,
        "the members' names; those of a set with commas between them; none in the charset `binary`",
    ),
    ("`json`", Kind.JSON, "MySQL's text of the value; MariaDB: the text that was written"),
    ("`bit(1)`", Kind.BOOLEAN, ""),
    ("`bit(n)`", Kind.BINARY, "big endian"),
    ("`binary`, `varbinary`, `tinyblob` to `longblob`", Kind.BINARY, "with the zero padding of `binary(n)`"),
    ("`geometry` and its subtypes", Kind.BINARY, "WKB"),
    ("`vector`", Kind.VECTOR, "MySQL 9, MariaDB 11.8"),
    ("`uuid`", Kind.UUID, "MariaDB"),
    ("`inet4`, `inet6`", Kind.ADDRESS, "MariaDB"),
)
CHOICES: tuple[tuple[str, Kind], ...] = (
    ("`zero_dates: string`: `date`, `datetime`, `timestamp`", Kind.MOMENT),
    ("`tinyint1: boolean`: `tinyint(1)`", Kind.BOOLEAN),
    ("`time: micros`: `time`", Kind.MICROS),
    ("`geometry: ewkb`: `geometry` and its subtypes", Kind.BINARY),
)


def configuration_page() -> str:
    """Every key of pipeline.yml; KeyError for a key without a meaning, ValueError for a meaning without a key."""
    meanings = dict(yaml.safe_load((DOCS / "keys.yml").read_text()))
    schema = Config.model_json_schema()
    parts: dict[str, list[str]] = {}
    for key, value, default in _keys(schema, schema["$defs"]):
        part = next((part for part in ("tables.options", "submit") if key.startswith(f"{part}.")), key.split(".")[0])
        parts.setdefault(part, []).append(
            f"| `{key.replace('*', 'PATTERN')}` | {value} | {default} | {meanings.pop(key)} |"
        )
    if meanings:
        raise ValueError(f"keys.yml has keys that pipeline.yml has not: {', '.join(meanings)}")
    single = [row for rows in parts.values() if len(rows) == 1 for row in rows]
    tables = {"The pipeline": single} | {f"`{part}`": rows for part, rows in parts.items() if len(rows) > 1}
    return "\n".join(
        [
            MADE,
            "# Configuration: pipeline.yml\n",
            "Commands read `./pipeline.yml`, or the file that `-c FILE` or `$LAKEINGEST_CONFIG` names. Relative paths",
            "start at the folder of that file. `${NAME}` is replaced by an environment variable, and `${NAME:-text}`",
            "has a default, for a variable that is not set (other than in a shell, an empty value stays empty).",
            "`--set key=value` overrides a key for one command. An unknown key is an error that names the nearest",
            "key. `lakeingest init` writes a commented example.\n",
            "`PATTERN` is a pattern like those of `tables.include`. If several patterns match a table, the options of",
            "the later ones win. Keys that this version refuses: [guarantees and limits](../guarantees.md).",
            *(_table(f"## {title}", ("key", "value", "default", "meaning"), rows) for title, rows in tables.items()),
        ]
    )


def cli_page() -> str:
    """Every command that is built, with its arguments and options."""
    group = cast("TyperGroup", get_command(cli.app))  # the app has several commands
    return "\n".join(
        [
            MADE,
            "# Commands\n",
            "`--debug` anywhere on the command line shows the trace of an error. Exit codes are listed in",
            "[schedule runs](../howto/schedule-runs.md#exit-codes).\n",
            *(_command(name, cast("TyperCommand", one)) for name, one in group.commands.items() if not one.hidden),
        ]
    )


def types_page() -> str:
    """What each type becomes in each format."""
    usual = [f"| {mysql} | {_in_lake(kind)} | {note} |" for mysql, kind, note in TYPES]
    chosen = [f"| {choice} | {_in_lake(kind)} |" for choice, kind in CHOICES]
    text = (DOCS / "reference" / "types.in").read_text()
    return MADE + text.replace(
        "@usual@", _table("", ("MySQL or MariaDB", "Iceberg", "Hudi (Spark)", "note"), usual).strip()
    ).replace("@chosen@", _table("", ("choice: columns", "Iceberg", "Hudi (Spark)"), chosen).strip())


def platforms_page() -> str:
    """Where whole runs were tested, as the tests that ran recorded it."""
    text = (DOCS / "reference" / "platforms.in").read_text()
    return MADE + text.replace("@tested@", platforms(DOCS / "tested.json"))


def platforms(record: Path) -> str:
    """The table of a record of `tests.plugins.platforms`."""
    names = {
        "a folder": "a folder and SQLite",
        "glue on s3": "S3 and Glue (moto)",
        "hive": "a folder and Hive's metastore",
        "rest": "a folder and REST",
        "rest on s3": "S3 and REST",
        "rest without names": "a folder and REST without renaming",
        "sql": "a folder and PostgreSQL",
    }
    heads = ("format", "tables and catalog", "executors", "server", "Spark", "Python", "passed", "failed", "day")
    keys = ("format", "lake", "executors", "server", "spark", "python", "passed", "failed", "day")
    rows = [" | ".join(str(names.get(row[key], row[key])) for key in keys) for row in json.loads(record.read_text())]
    return _table("", heads, [f"| {row} |" for row in rows]).strip()


def ddl_page() -> str:
    """What a copy does at each kind of DDL, as the end-to-end tests prove it."""
    heads = ("DDL", "what a copy does", "note")
    tables = (
        _table(
            f"## {title}",
            heads,
            [f"| `{kind.shown}` | {kind.outcome} | {kind.note} |" for kind in kinds],
        )
        for title, kinds in KINDS.items()
    )
    text = (DOCS / "reference" / "ddl.in").read_text()
    return MADE + text.replace("@kinds@", "\n".join(tables).strip())


def session_variables_page() -> str:
    """What becomes of each session variable that a server may impose."""
    listed = yaml.safe_load((DOCS / "session-variables.yml").read_text())
    variables = {part: _of_servers(groups) for part, groups in listed.items()}
    pins = [("both", pin) for pin in session.BOTH]
    pins += [("mysql", pin) for pin in session.ON_MYSQL] + [("mariadb", pin) for pin in session.ON_MARIADB]
    pinned = {
        f"| `{pin.name}` | {_SERVERS[server]} | {f'`{pin.value}`' if pin.value else 'empty'} | {pin.why} |"
        for server, pin in pins
        if (pin.name, pin.value) != ("autocommit", "0")
    }
    tables = {
        "pinned": _table("", ("variable", "server", "value", "without it"), sorted(pinned)),
        "refused": _table("", ("variable", "server", "for instance"), _rows(variables["refused"])),
        "harmless": _table("", ("variable", "server", "tried"), _rows(variables["harmless"])),
        "out_of_reach": _table("", ("variable", "server", "why"), _rows(variables["out_of_reach"], shown="{}")),
    }
    text = (DOCS / "reference" / "session-variables.in").read_text()
    for part, table in tables.items():
        text = text.replace(f"@{part}@", table.strip())
    return MADE + text


_SERVERS = {"both": "both", "mysql": "MySQL", "mariadb": "MariaDB"}


def _of_servers(groups: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, Any]]:
    """The variables of a part of the list, with their server and what is said of them, by their names."""
    return sorted((name, _SERVERS[server], said) for server, group in groups.items() for name, said in group.items())


def _rows(variables: list[tuple[str, str, Any]], shown: str = "`{}`") -> list[str]:
    values = [said if isinstance(said, list) else [said] for _, _, said in variables]
    return [
        f"| `{name}` | {server} | {', '.join(shown.format(one) if one != '' else 'empty' for one in tried)} |"
        for (name, server, _), tried in zip(variables, values, strict=True)
    ]


def metrics_page() -> str:
    """Every metric, with its type, unit, labels and meaning."""
    text = (DOCS / "reference" / "metrics.in").read_text()
    of_tables = [one for one in DEFINITIONS.values() if "table" in one.labels]
    parts = {"tables": of_tables, "runs": [one for one in DEFINITIONS.values() if one not in of_tables]}
    for part, definitions in parts.items():
        rows = [
            f"| `{one.name}` | {one.kind} | {one.unit} | {', '.join(f'`{label}`' for label in one.labels) or 'none'} |"
            f" {one.meaning} |"
            for one in definitions
        ]
        heads = ("metric", "type", "unit", "labels", "meaning")
        text = text.replace(f"@{part}@", _table("", heads, rows).strip())
    return MADE + text


PAGES = {
    "metrics.md": metrics_page,
    "session-variables.md": session_variables_page,
    "ddl.md": ddl_page,
    "configuration.md": configuration_page,
    "cli.md": cli_page,
    "types.md": types_page,
    "platforms.md": platforms_page,
}


def _keys(schema: Mapping[str, Any], defined: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """The keys of a JSON schema by their dotted names, with their values and defaults."""
    for name, field in schema["properties"].items():
        key = f"{prefix}{name}"
        forms = [form for form in field.get("anyOf", [field]) if form != {"type": "null"}]
        inner = forms[0].get("$ref") or _of_patterns(forms[0])
        if inner:
            pattern = "" if forms[0].get("$ref") else "*."
            yield from _keys(defined[inner.rpartition("/")[2]], defined, f"{key}.{pattern}")
        else:
            nullable = {"type": "null"} in field.get("anyOf", []) and field["default"] is not None
            values = [_value(form) for form in forms] + ["`null`"] * nullable
            required = name in schema.get("required", ())
            yield key, " or ".join(values), "required" if required else _default(field)


def _of_patterns(form: Mapping[str, Any]) -> str:
    """The model of each value, where the keys are the user's patterns."""
    values = form.get("additionalProperties")
    return values.get("$ref", "") if isinstance(values, Mapping) else ""


def _value(form: Mapping[str, Any]) -> str:
    """What may stand there, in words."""
    if "const" in form or "enum" in form:
        return ", ".join(f"`{value}`" for value in form.get("enum", [form.get("const")]))
    least, most, above = form.get("minimum"), form.get("maximum"), form.get("exclusiveMinimum")
    if form["type"] in {"integer", "number"}:
        bounds = [
            f" {word} {bound:g}"
            for word, bound in (("from", least), ("above", above), ("to", most))
            if bound is not None
        ]
        return "a number" + "".join(bounds)
    texts = {
        "path": "a path",
        "duration": "a duration such as `12h` or `5d`",
        "window": "times of day such as `22:00-06:00`",
    }
    names = {"array": "a list", "object": "keys and values", "string": "text", "boolean": "`true`, `false`"}
    return texts.get(form.get("format", ""), names[form["type"]])


def _default(field: Mapping[str, Any]) -> str:
    """The default as pipeline.yml has it; "none" where there is none."""
    default = field["default"]
    if default in (None, "", [], {}):
        return "none"
    if field.get("format") == "duration":
        default = str(default).lstrip("PT").lower()
    if isinstance(default, bool):
        default = str(default).lower()
    return f"`{default}`"


def _command(name: str, command: TyperCommand) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    records = [record for one in command.params if (record := one.get_help_record(context))]
    arguments = [names.split(" <")[0] for names, _ in records if not names.startswith("-")]
    rows = [f"| `{names.replace('|', ' or ')}` | {' '.join(text.split())} |" for names, text in records]
    usage = " ".join(["lakeingest", name, "[OPTIONS]", *arguments])
    head = f"## {name}\n\n{command.help}\n\n```text\n{usage}\n```"
    return head + _table("", ("argument or option", "meaning"), rows)


def _in_lake(kind: Kind) -> str:
    column = Column("c", kind, SourceType("", ""), precision=10, scale=2)
    return f"`{iceberg_type(column)}` | `{hudi_type(column)}`"


def _table(title: str, heads: tuple[str, ...], rows: list[str]) -> str:
    return "\n".join([f"\n{title}\n", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *rows, ""])


if __name__ == "__main__":
    if sys.argv[1:]:  # the path of a record: CI prints the page for the tests that it has run itself
        print(platforms(Path(sys.argv[1])))
    else:
        for name, page in PAGES.items():
            (DOCS / "reference" / name).write_text(page())
