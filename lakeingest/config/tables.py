"""Which tables are copied, and how: `tables` of pipeline.yml."""

import fnmatch
import hmac
import re
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, model_validator

from lakeingest.config.adopt import Adopt
from lakeingest.config.duration import Duration
from lakeingest.config.location import Location, is_of_one_table
from lakeingest.config.startup import StartAt
from lakeingest.config.table_properties import Properties
from lakeingest.core.tables import partitioning, sorting
from lakeingest.core.tables.casts import CASTS
from lakeingest.core.tables.column_choice import ColumnChoice
from lakeingest.core.tables.row_filter import parse
from lakeingest.core.tables.schema import Choices, TableId, TableSchema
from lakeingest.errors import OperatorNeeded, UsageError

if TYPE_CHECKING:
    from typing import Self


_KEY_CHARACTERS = 16  # the fewest characters of `tables.hash_key`
_KEY_ID_DIGITS = 8


def _checked_pattern(text: str) -> str:
    """The pattern, unchanged. Raises ValueError if what follows `re:` is no regular expression."""
    if text.startswith("re:"):
        try:
            re.compile(text[3:])
        except re.error as error:
            raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return text


def _as_written(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Each partition in the form that `PartitionField` writes. Raises ValueError for a text that is no partition."""
    return tuple(map(str, partitioning.parse_all(texts)))


def _sort_fields(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Each column in the form that `SortField` writes. Raises ValueError for a text that is no column to sort by."""
    return tuple(map(str, sorting.parse_all(texts)))


def _checked_key(key: SecretStr) -> SecretStr:
    if len(key) < _KEY_CHARACTERS:
        raise ValueError(f"a key of hashes has {_KEY_CHARACTERS} characters or more")
    return key


def _checked_cast(to: str) -> str:
    if to not in CASTS:
        raise ValueError(f"{to!r} is no type to which columns are cast; known are {', '.join(sorted(CASTS))}")
    return to


def _checked_condition(text: str) -> str:
    """The condition in the form that a definition has. Raises ValueError for a text that is no condition."""
    return str(parse(text)) if text.strip() else ""


_QUOTED = r'`(?:[^`]|``)+`|"(?:[^"]|"")+"'
_AS_IN_SQL = re.compile(rf'({_QUOTED}|[^`".]+)\.({_QUOTED}|[^`"]+)', re.DOTALL)

Pattern = Annotated[str, AfterValidator(_checked_pattern)]
MetadataName = Literal["op", "position", "committed_at", "database", "table"]
HistoryKind = Literal["none", "scd2"]  # scd2: a table beside the copy has every version of each row


class Types(BaseModel):
    """How values of some types are copied; `core.tables.schema.Choices` describes the options.

    `zero_dates: null` is a null of YAML, so it is None here.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    zero_dates: Literal["error", "string"] | None = "error"
    tinyint1: Literal["int", "boolean"] = "int"
    time: Literal["text", "micros"] = "text"
    geometry: Literal["wkb", "ewkb"] = "wkb"
    virtual: Literal["keep", "skip"] = "keep"
    generated: Literal["keep", "skip"] = "keep"


class Columns(BaseModel):
    """Which columns are copied; `core.tables.column_choice.ColumnChoice` describes the options."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    include: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    exclude: tuple[str, ...] = ()
    hash: tuple[str, ...] = ()
    mask: tuple[str, ...] = ()
    rename: dict[str, Annotated[str, Field(min_length=1)]] = {}  # by the name at the source, the name in the copy
    cast: dict[str, Annotated[str, AfterValidator(_checked_cast)]] = {}  # by the name at the source, a key of CASTS

    @model_validator(mode="after")
    def _assert_one_name(self) -> "Self":
        """Raise ValueError if `rename` or `cast` has a column twice, or if `rename` gives two columns one name."""
        for key, names in (("rename", self.rename), ("rename", self.rename.values()), ("cast", self.cast)):
            folded = [name.casefold() for name in names]
            if twice := [name for name in names if folded.count(name.casefold()) > 1]:
                raise ValueError(f"{key} has {', '.join(twice)} twice")
        return self

    @model_validator(mode="after")
    def _assert_one_form(self) -> "Self":
        """Raise ValueError if two of `hash`, `mask` and `cast` name the same column."""
        lists = {"hash": self.hash, "mask": self.mask, "cast": tuple(self.cast)}
        for one, other in combinations(lists, 2):
            named = {name.casefold() for name in lists[other]}
            if both := [name for name in lists[one] if name.casefold() in named]:
                raise ValueError(f"{one} and {other} both name {', '.join(both)}")
        return self


class TableOptions(BaseModel):
    """The options of a table, or of all tables that a pattern matches."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    chunk_rows: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    key: tuple[str, ...] = ()  # columns that are unique together, for a table without a unique index
    types: Types = Types()
    columns: Columns = Columns()
    rows: Annotated[str, AfterValidator(_checked_condition)] = ""  # the condition of the rows that are copied; '': all
    cascades: Literal["read", "missing", "refuse"] = "read"  # for changes by foreign keys that are not in the binlog
    deletes: Literal["hard", "soft"] = "hard"  # soft: deleted rows stay in the copy, and are marked
    metadata: tuple[MetadataName, ...] = ()  # metadata columns that are added to the copy
    properties: Properties = {}  # table properties of the copy, besides those in target.properties
    history: HistoryKind | None = None  # None: as `history` of pipeline.yml says
    max_staleness: Duration | None = None  # the objective for the age of what readers see
    priority: Annotated[int, Field(ge=-100, le=100)] = 0  # tables of higher priority are copied and published first
    location: Location | None = None  # the folder of a new copy; overrides target.location
    partition_by: Annotated[tuple[str, ...], AfterValidator(_as_written)] = ()  # how a new copy is divided
    sort_by: Annotated[tuple[str, ...], AfterValidator(_sort_fields)] = ()  # how rows are sorted within each file
    adopt: Adopt = Adopt()  # what a person says about a table that another tool made
    _key_id: str = PrivateAttr("")  # a digest of tables.hash_key
    _adopts: bool = PrivateAttr(default=False)  # whether tables.startup is adopt
    _shared: bool = PrivateAttr(default=False)  # whether several tables have one target, whose rows name their tables

    @property
    def takes_over(self) -> bool:
        """Whether a table of another tool that has the name of the copy becomes the copy."""
        return self._adopts and self.adopt.stopped is not None

    @property
    def partitions(self) -> tuple[partitioning.PartitionField, ...]:
        """The partitions of the copy; () if the copy has none."""
        return partitioning.parse_all(self.partition_by)

    @property
    def sorting(self) -> tuple[sorting.SortField, ...]:
        """The columns by which rows are sorted within each file; () if they are not sorted."""
        return sorting.parse_all(self.sort_by)

    def refusal_of_form(self, schema: TableSchema) -> str | None:
        """The first reason why a table with this definition cannot have these partitions, or this order of rows.

        None if there is no reason.
        """
        return partitioning.refusal(self.partitions, schema) or sorting.refusal(self.sorting, schema)

    @property
    def choices(self) -> Choices:
        """The options that decide which columns the copy has, and how values are copied."""
        types = self.types
        return Choices(
            key=self.key,
            zero_dates=types.zero_dates or "null",
            tinyint1=types.tinyint1,
            time=types.time,
            geometry=types.geometry,
            virtual=types.virtual,
            generated=types.generated,
            deletes=self.deletes,
            metadata=(*self.metadata, "database", "table") if self._shared else self.metadata,
            columns=ColumnChoice(
                self.columns.include or (),
                self.columns.exclude,
                self.columns.hash,
                self.columns.mask,
                self._key_id if self.columns.hash else "",
                tuple(sorted(self.columns.cast.items())),
                tuple(self.columns.rename.items()),
            ),
            rows=self.rows,
        )

    def within(self, tables: "Tables") -> "Self":
        """The same options, with the facts of `tables` that hold for every table: `key_id`, `adopts` and `_shared`."""
        options = self.model_copy()
        options._key_id, options._adopts = tables.key_id, tables.adopts  # noqa: SLF001 - of this class
        options._shared = tables._shared  # noqa: SLF001 - of this class
        return options


_UNSET = TableOptions()  # one object for all tables that no pattern matches: they may be thousands


class Tables(BaseModel):
    """Which tables are copied, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    include: tuple[Pattern, ...] = Field(min_length=1)
    exclude: tuple[Pattern, ...] = ()
    hash_key: Annotated[SecretStr, AfterValidator(_checked_key)] | None = None  # for options.*.columns.hash
    startup: Literal["initial", "snapshot_only", "latest", "adopt"] | dict[str, Any] = "initial"
    options: dict[Pattern, TableOptions] = {}
    _shared: bool = PrivateAttr(default=False)  # whether target.table gives one name to several tables

    def sharing(self) -> "Self":
        """The same tables, whose rows name their database and table, because several tables have one target."""
        tables = self.model_copy()
        tables._shared = True  # noqa: SLF001 - of this class
        return tables

    @property
    def copies_once(self) -> bool:
        """Whether each table is copied only once: after its first copy no run changes it."""
        return self.startup == "snapshot_only"

    @property
    def adopts(self) -> bool:
        """Whether new copies take over the tables of other tools that have their names."""
        return self.startup == "adopt"

    @property
    def begins_at(self) -> StartAt | None:
        """The place at which copies of new tables begin empty; None if `startup` names no place."""
        return None if isinstance(self.startup, str) else StartAt.of(self.startup)

    @property
    def begins_empty(self) -> bool:
        """Whether copies of new tables begin empty, with only the changes from a place on."""
        return self.startup == "latest" or self.begins_at is not None

    @model_validator(mode="after")
    def _assert_startup(self) -> "Self":
        if not isinstance(self.startup, str):
            StartAt.of(self.startup)  # raises the error of a mistake
        return self

    @model_validator(mode="after")
    def _assert_folder_per_table(self) -> "Self":
        """Raise ValueError for a location that gives one folder to several tables."""
        for pattern, options in self.options.items():
            is_shared = pattern.startswith("re:") or any(letter in pattern for letter in "*?[")
            if options.location is not None and is_shared and not is_of_one_table(options.location):
                raise ValueError(f"options.{pattern}.location: it needs {{database}} and {{table}}")
        return self

    def select(self, tables: Iterable[TableId]) -> list[TableId]:
        """The tables among `tables` that tables.include matches and tables.exclude does not, sorted."""
        return sorted(
            table
            for table in tables
            if any(_matches(pattern, table) for pattern in self.include)
            and not any(_matches(pattern, table) for pattern in self.exclude)
        )

    def choose(self, included: Sequence[TableId], names: Sequence[str]) -> list[TableId]:
        """The included tables with these names (see `table_named`), sorted; without names, all included tables.

        Raises UsageError for a name that no included table has. Raises OperatorNeeded if no table is included.
        """
        if not included:
            raise OperatorNeeded(f"no table of the source matches tables.include {list(self.include)}")
        chosen = sorted({table_named(included, name) for name in names})
        return chosen or list(included)  # none are chosen only if there are no names

    def of(self, table: TableId) -> TableOptions:
        """The options of a table. If several patterns set the same option, the last of these patterns counts."""
        merged: dict[str, Any] = {}
        for pattern, options in self.options.items():
            if _matches(pattern, table):
                set_here = options.model_dump(exclude_unset=True)
                # these are mappings: a later pattern replaces single keys in them
                for key in {"types", "properties", "columns", "adopt"} & set_here.keys():
                    set_here[key] = {**merged.get(key, {}), **set_here[key]}
                merged |= set_here
        return (TableOptions(**merged) if merged else _UNSET).within(self)

    def history_of(self, table: TableId, usual: HistoryKind) -> HistoryKind:
        """The kind of history that is written of a table. `usual`: the kind for tables whose options name none."""
        return self.of(table).history or usual

    @property
    def secret(self) -> bytes:
        """The key of the hashes; empty without one."""
        return b"" if self.hash_key is None else self.hash_key.get_secret_value().encode()

    @property
    def key_id(self) -> str:
        """A short digest of the key, by which a copy knows that its hashes have this key; '' without one."""
        return hmac.digest(self.secret, b"lakeingest", "sha256").hex()[:_KEY_ID_DIGITS] if self.secret else ""


def table_named(included: Iterable[TableId], name: str) -> TableId:
    """The included table with this name, which is written `database.table`.

    Each of the two parts can be quoted as in SQL, by backquotes or double quotes. A table whose name has
    these quotes in it comes first. Raises UsageError if no included table has the name.
    """
    tables = {str(table): table for table in included}
    if name in tables:
        return tables[name]
    if parts := _AS_IN_SQL.fullmatch(name):
        table = TableId(*map(_unquoted, parts.groups()))
        if table in tables.values():
            return table
    raise UsageError(f"{name} is not among the source's tables that tables.include names")


def _unquoted(name: str) -> str:
    """The name without its quotes, if it has any. Within them, two quotes stand for one."""
    sign = name[0]
    return name[1:-1].replace(sign * 2, sign) if sign in '`"' else name


def _matches(pattern: str, table: TableId) -> bool:
    """Whether the pattern matches: a regular expression after `re:`, otherwise shell patterns of database and name."""
    if pattern.startswith("re:"):
        return re.fullmatch(pattern[3:], str(table)) is not None
    database, _, name = pattern.partition(".")
    return fnmatch.fnmatchcase(table.database, database) and fnmatch.fnmatchcase(table.name, name)
