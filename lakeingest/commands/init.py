"""Init: write a commented pipeline.yml, with the tables of a source if its URL is given."""

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from pydantic import SecretStr

from lakeingest.config import Source
from lakeingest.config.source import Tls
from lakeingest.config.tables import Tables
from lakeingest.core.tables.proposed_partitions import ProposedPartitions
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import OperatorNeeded, UsageError
from lakeingest.mysql.connection import connect, literal
from lakeingest.mysql.date_spread import proposed_partitions
from lakeingest.mysql.dialect import MARIADB, MYSQL, Dialect, dialect
from lakeingest.mysql.preflight.foreign_keys import CASCADES_FIX, hindrance, unlogged_keys
from lakeingest.mysql.preflight.server import Server
from lakeingest.mysql.rights import grant_statements, has_patterns
from lakeingest.mysql.schema_reader import list_tables, read_schema

PASSWORD = "MYSQL_PASSWORD"  # noqa: S105 - the name of a variable; the password itself is never written
_EXAMPLE = Source(host="db.example.com", user="lake")
_TLS_OPTIONS = {"tls.mode", "tls.ca", "tls.pin"}
DIALECTS = {"MySQL": MYSQL, "MariaDB": MARIADB}
_PLAIN = re.compile(r"[\w$ -]+")  # names without characters that have a meaning in a glob


_EXAMPLE_OF_OPTIONS = (
    '  # options: {"*.*": {chunk_rows: auto, key: [], types: {zero_dates: error}, deletes: hard, metadata: []}}'
)
_WHY_PARTITIONS = (
    "  # These partitions are only proposed. They speed up queries with a condition on the date, if rows keep their\n"
    "  # dates. They count for new copies, which keep them."
)


class _Template(string.Template):
    delimiter = "@"  # not `$`, because the template has texts such as ${MYSQL_PASSWORD}


@dataclass(frozen=True, slots=True)
class Written:
    """The written file, the tables that it includes, and the tables that it excludes (`refused`), with the reasons.

    `partitions`: the partitions that it proposes, in comments.
    """

    path: Path
    tables: tuple[TableId, ...]
    refused: Mapping[TableId, str]
    partitions: Mapping[TableId, ProposedPartitions] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Answers:
    """What a source says. `tables`: those that can be copied; `refused`: the others, each with the reason.

    `partitions`: those that are proposed. `dialects`: the entry of DIALECTS for the server. `names_are_patterns`:
    whether names of databases in GRANT are patterns on this server.
    """

    tables: tuple[TableId, ...] = ()
    refused: Mapping[TableId, str] = field(default_factory=dict)
    partitions: Mapping[TableId, ProposedPartitions] = field(default_factory=dict)
    dialects: Mapping[str, Dialect] = field(default_factory=lambda: DIALECTS)
    names_are_patterns: bool = True


def init(path: Path, url: str | None, environment: Mapping[str, str]) -> Written:
    """Write a pipeline.yml: an example, or with `url` a file for the tables of that source.

    The URL is `mysql://user:password@host:port/database`, or the same with `mariadb://`. Password, port and database
    can be left out; the defaults are $MYSQL_PASSWORD, 3306 and all databases. `?tls.mode=…`, `?tls.ca=…` and
    `?tls.pin=…` are the keys of `source.tls`.

    Raises UsageError if the file exists or cannot be written, if its folder does not exist, or if the URL has another
    form.
    """
    if path.exists():
        raise UsageError(f"{path} exists already and is not overwritten; name another path")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: the folder {path.parent} does not exist; make it first")
    if url is None:
        text, written = _file_text(_EXAMPLE, "shop", ["shop"], _Answers()), Written(path, (), {})
    else:
        source, database = _parse_url(url, environment.get(PASSWORD, ""))
        # The file gets the paths as the URL has them, relative to the file's folder. This process needs usable paths.
        source_from_here = source.model_copy(update={"tls": source.tls.below(path.parent)})
        answers = _read_tables(source_from_here, database)
        databases = sorted({table.database for table in (*answers.tables, *answers.refused)})
        text = _file_text(source, database or source.host, databases, answers)
        written = Written(path, answers.tables, answers.refused, answers.partitions)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    return written


def _parse_url(url: str, password: str) -> tuple[Source, str | None]:
    """The source that a URL names, and the database; None if the URL names no database, which means all databases.

    `password` is used if the URL has no password. Raises UsageError for a URL of another form.
    """
    # the message quotes no part of the URL: any part may belong to a password with signs that are not percent-encoded
    malformed = UsageError(
        "--from-source: wanted mysql://user:password@host:port/database, signs such as @ : / ? # % percent-encoded, and"
        " after that, where wanted, ?tls.mode=MODE, ?tls.ca=FILE or ?tls.pin=sha256:…"
    )
    try:
        parts = urlsplit(url)
        database = parts.path.removeprefix("/")
        if parts.scheme not in {"mysql", "mariadb"} or not parts.username or not parts.hostname:
            raise malformed
        pairs = (pair.partition("=") for pair in parts.query.split("&") if pair)
        query = {key: unquote(value) for key, _, value in pairs}
        has_unknown_keys = bool(query.keys() - _TLS_OPTIONS)
        if "/" in database or parts.fragment or has_unknown_keys:
            raise malformed
        tls = {key.removeprefix("tls."): value for key, value in query.items()}
        source = Source(
            host=parts.hostname,
            port=3306 if parts.port is None else parts.port,
            user=unquote(parts.username),
            password=SecretStr(password if parts.password is None else unquote(parts.password)),
            tls=Tls.model_validate(tls),
        )
    except ValueError:  # in a port, in an address in brackets, or in a key of TLS
        raise malformed from None
    return source, unquote(database) or None


def _read_tables(source: Source, database: str | None) -> _Answers:
    """Ask the source for what the file is made of."""
    refused: dict[TableId, str] = {}
    schemas: dict[TableId, TableSchema] = {}
    with connect(source) as connection:
        tables = [table for table in list_tables(connection) if database is None or table.database == database]
        for table in tables:
            try:
                schemas[table] = read_schema(connection, table)
            except OperatorNeeded as error:
                # without the table's name and the advice: the file has the reason beside the name, in tables.exclude
                refused[table] = (
                    str(error).removeprefix(f"{table}: ").removesuffix(". Leave it out with tables.exclude")
                )
        # only one of the two entries is kept: MariaDB for a MariaDB server, MySQL for all others
        is_mariadb = dialect(connection) is MARIADB
        dialects = {name: kind for name, kind in DIALECTS.items() if (kind is MARIADB) == is_mariadb}
        refused |= _refused_by_cascades(Server.of(connection, list(schemas)), list(schemas))
        copied = tuple(table for table in tables if table not in refused)
        partitions = {
            table: proposed for table in copied if (proposed := proposed_partitions(connection, schemas[table]))
        }
        names_are_patterns = has_patterns(connection)
    if not tables:
        raise OperatorNeeded(
            f"the source {source.host}:{source.port} has no table {'' if database is None else f'in {database} '}"
            f"that user {source.user} may see"
        )
    return _Answers(copied, refused, partitions, dialects, names_are_patterns)


def _refused_by_cascades(server: Server, readable: Sequence[TableId]) -> dict[TableId, str]:
    """The tables whose changes by foreign keys cannot be read again, each with the reason.

    To read such changes again, a table needs its parent tables. If a parent is refused, its children may have to be
    refused, too. So the search is repeated without the refused tables, until it refuses no more tables.
    """
    refused: dict[TableId, str] = {}
    unlogged = unlogged_keys(server, readable)
    while True:
        not_refused = [table for table in readable if table not in refused]
        # also tables whose foreign keys the server does not show (`unknown`)
        with_keys = (unlogged.keys.keys() | unlogged.unknown) & set(not_refused)
        if not with_keys:
            return refused
        options = Tables(include=tuple(f"re:{re.escape(str(table))}" for table in not_refused))
        refused_before = len(refused)
        for table in with_keys:
            if reason := hindrance(options, table, unlogged):
                refused[table] = f"foreign keys change its rows outside the binlog: {reason}; {CASCADES_FIX}"
        if len(refused) == refused_before:
            return refused


def _file_text(source: Source, title: str, databases: Sequence[str], answers: _Answers) -> str:
    """The text of a pipeline.yml. The pipeline's name is `title`, with `-` for characters that a name cannot have."""
    template = _Template(resources.files(__package__).joinpath("pipeline.yml").read_text(encoding="utf-8"))
    left_out = [
        f"\n    # {_as_one_line(reason)}\n    - {_quoted(_pattern(table.database, table.name))}"
        for table, reason in answers.refused.items()
    ]
    rights: list[str] = []
    account, are_patterns = f"{literal(source.user)}@'%'", answers.names_are_patterns
    for name, kind in answers.dialects.items():
        statements = grant_statements(kind, account, databases, names_are_patterns=are_patterns)
        rights += [f"\n  #   {_as_one_line(statement)};  -- {name}" for statement in statements]
    return template.substitute(
        name=_quoted(re.sub(r"[^A-Za-z0-9_-]+", "-", title).strip("_-") or "pipeline"),
        host=_quoted(source.host),
        port=source.port,
        rights="".join(rights),
        user=_quoted(source.user),
        tls=_tls_line(source),
        include=", ".join(_quoted(_pattern(database)) for database in databases),
        exclude="".join(left_out) or " []",
        options=_options(answers.partitions),
    )


def _options(partitions: Mapping[TableId, ProposedPartitions]) -> str:
    """The lines of the key `options`, commented out: an example, or what is proposed for tables of the source."""
    if not partitions:
        return _EXAMPLE_OF_OPTIONS
    lines = [_WHY_PARTITIONS, "  # options:"]
    for table, proposed in partitions.items():
        item = _quoted(str(proposed.field))
        lines.append(f"  #   # {_as_one_line(f'{proposed.field.column}: {proposed.reason}')}")
        lines.append(f"  #   {_quoted(_pattern(table.database, table.name))}: {{partition_by: [{item}]}}")
    return "\n".join(lines)


def _tls_line(source: Source) -> str:
    """The line of the key `tls`. The line is commented out if all values are defaults."""
    tls = source.tls.model_dump(mode="json", exclude_defaults=True)
    if not tls:
        return f"# tls: {{mode: {source.tls_mode}}}"
    return f"tls: {yaml.safe_dump(tls, default_flow_style=True, width=10_000).strip()}"


def _pattern(database: str, name: str | None = None) -> str:
    """A pattern of tables.include that matches exactly this table, or without `name` all tables of the database.

    A name with special characters is written as an escaped regular expression.
    """
    if _PLAIN.fullmatch(database + (name or "")):
        return f"{database}.{name or '*'}"
    if name:
        return "re:" + re.escape(str(TableId(database, name)))
    return "re:" + re.escape(str(TableId(database, ""))) + ".*"


def _quoted(text: str) -> str:
    """The text as YAML writes it in double quotes. The great `width` keeps it in one line."""
    return yaml.safe_dump(text, default_style='"', allow_unicode=True, width=10_000).strip()


def _as_one_line(text: str) -> str:
    """The text with a blank in place of each character that is not printable, such as a line end."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
