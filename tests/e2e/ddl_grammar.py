"""Statements of one table by chance: DDL of every form, and DML. Pure: the same seed and answers give the same ones.

`{t}` stands for the table's name. What the server refuses changes nothing, and the next statement is drawn from what
the server says of the table then (`Known`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TypeVar

from tests.e2e import ddl_types as types

T = TypeVar("T")

KEYS = 12
KID = "_kid"  # the end of the name of a table that refers to the table
DDL = "CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"
COMPUTED = "(", "CURRENT", "NOW"  # in a default that copies do not follow
TRIES = 9  # to draw a statement that the server accepts
DML_BEFORE, DML_AFTER = (0, 0, 1, 2), (0, 1, 3)  # how many statements there are between DDL and a comparison
ZONES = "+00:00", "+00:00", "+00:00", "+05:30", "-11:00"
CLIENTS = "utf8mb4", "utf8mb4", "utf8mb4", "utf8mb4", "latin1", "utf8mb3"
STRICT_MODES = ("STRICT_TRANS_TABLES", "STRICT_TRANS_TABLES", "STRICT_ALL_TABLES", "TRADITIONAL")
LAX_MODES = ("", "", "", "NO_ZERO_DATE", "ALLOW_INVALID_DATES")
OTHER_MODES = ("NO_BACKSLASH_ESCAPES", "ANSI_QUOTES", "PAD_CHAR_TO_FULL_LENGTH", "REAL_AS_FLOAT", "PIPES_AS_CONCAT")


@dataclass(frozen=True)
class Session:
    """Settings of the session that runs a statement, in SQL."""

    mode: str = "STRICT_TRANS_TABLES"
    zone: str = "+00:00"
    client: str = "utf8mb4"
    plain_timestamps: bool = True

    @property
    def settings(self) -> tuple[str, ...]:
        """The statements that choose them."""
        defaults = "ON" if self.plain_timestamps else "OFF"
        return (
            f"SET NAMES {self.client}",
            "SET character_set_results = utf8mb4",
            f"SET SESSION sql_mode = '{self.mode}', time_zone = '{self.zone}',"
            f" explicit_defaults_for_timestamp = {defaults}",
        )


STRICT = Session()


@dataclass(frozen=True)
class Statement:
    """SQL of one table. `parts` stand between head and tail, with commas; a shorter statement lacks some of them.

    `members` are those of the ENUM and SET columns that it defines: no server shows characters beyond U+FFFF.
    """

    head: str
    parts: tuple[str, ...] = ()
    tail: str = ""
    session: Session = STRICT
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)

    @property
    def is_ddl(self) -> bool:
        """Whether the table may be another one after it."""
        return self.head.startswith(DDL)

    def text(self, table: str) -> str:
        """The SQL for a table of this name."""
        return f"{self.head}{', '.join(self.parts)}{self.tail}".replace("{t}", table)


@dataclass(frozen=True)
class Known:
    """What the server says of a table: the types of its columns but the key and generated ones; the names of the key.

    `generated` has the expressions of the generated columns.
    """

    columns: Mapping[str, str]
    key: tuple[str, ...]
    generated: Mapping[str, str] = field(default_factory=dict)

    @property
    def bases(self) -> list[str]:
        """The columns that a generated one is computed from."""
        return [name for name in self.columns if any(f"`{name}`" in one for one in self.generated.values())]


class Grammar:
    """Draws the statements of one table. Each that the server accepts is to be told to `accepted`."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.known = Known({}, ("id",))
        self._members: dict[str, tuple[str, ...]] = {}
        self._defined: dict[str, tuple[str, ...]] = {}
        self._named = 0
        self._session = STRICT
        self._is_accepted = False
        self._is_simple = chance.random() < 0.8  # one clause a statement, and none that copies cannot follow
        self._aim = chance.choice(types.AIMS)
        self._is_narrow = chance.random() < 0.25  # text that is defined anew may lose characters
        # columns next to which copies follow less DDL; most of what is computed of a moment they follow
        self._has_generated = chance.random() < (0.6 if self._aim is types.DATED else 0.1)

    def accepted(self, statement: Statement, known: Known | None) -> None:
        """The server has done it, and says this of the table, if it was DDL."""
        self.known, self._is_accepted = known or self.known, True
        self._members.update(statement.members)

    def created(self) -> Iterator[Statement]:
        """The table, until the server accepts one, and its first rows."""
        while not self.known.columns:
            self._begin()
            names = [self._new_name() for _ in range(self.chance.randrange(1, 5))]
            key = self.chance.choice(["INT", "INT", "BIGINT UNSIGNED", "VARCHAR(12)", "INT AUTO_INCREMENT"])
            defined = {name: self._definition(name) for name in names}
            columns = [f"id {key} PRIMARY KEY", *(f"{name} {definition}" for name, definition in defined.items())]
            generated = range(self._has_generated * self._pick([1, 2]))
            columns += [self._generated(self._new_name(), defined) for _ in generated]
            yield self._statement("CREATE TABLE {t} (", columns, f"){self._table_options()}")
        for number in range(self._pick([1, 3, KEYS, KEYS])):
            yield from self._tried(partial(self._inserted, number))
        if self.chance.random() < 0.15:
            yield from self._kid(key.replace(" AUTO_INCREMENT", ""))

    def _inserted(self, number: int) -> Iterator[Statement]:
        yield self.insert("INSERT", number, wholly=True)

    def _kid(self, key: str) -> Iterator[Statement]:
        """A table that refers to each row, and changes with it."""
        on_delete, on_update = self._pick(["CASCADE", "SET NULL"]), self._pick(["CASCADE", "SET NULL"])
        yield Statement(
            f"CREATE TABLE {{t}}{KID} (",
            (
                "id INT PRIMARY KEY AUTO_INCREMENT",
                f"up {key}",
                f"FOREIGN KEY (up) REFERENCES {{t}} ({self.known.key[0]}) ON DELETE {on_delete} ON UPDATE {on_update}",
            ),
            ")",
        )
        yield Statement(f"INSERT INTO {{t}}{KID} (up) SELECT {self.known.key[0]} FROM {{t}}")

    def round(self) -> Iterator[Statement]:
        """What comes between two comparisons: some DDL, with some DML around it."""
        for count, draw in ((DML_BEFORE, self.dml), ((1, 1, 1, 1, 2, 3), self.ddl), (DML_AFTER, self.dml)):
            for _ in range(self._pick(count)):
                yield from self._tried(draw)

    def _tried(self, draw: Callable[[], Iterator[Statement]]) -> Iterator[Statement]:
        """Statements of this kind, drawn until the server accepts one."""
        self._is_accepted = False
        for _ in range(TRIES):
            yield from draw()
            if self._is_accepted:
                break

    def ddl(self) -> Iterator[Statement]:
        """One change of the definition: an ALTER TABLE, or statements that end in another table or fewer rows."""
        self._begin()
        if not self._is_simple and self.chance.random() < 0.08:
            yield from self._barrier()
            return
        count = 1 if self._is_simple and self.chance.random() < 0.7 else self._pick([1, 2, 2, 3])
        actions = [self._action() for _ in range(count)]
        yield self._statement("ALTER TABLE {t} ", actions)

    def dml(self) -> Iterator[Statement]:
        """One change of rows."""
        chance, columns = self.chance, list(self.known.columns)
        key = self.known.key[0]
        where = self._pick([f" WHERE {key} = {chance.randrange(KEYS)}", f" ORDER BY {key} LIMIT 3", ""])
        lax = Session(mode="") if chance.random() < 0.2 else STRICT
        match self._pick(["insert", "insert", "replace", "update", "update", "delete", "key"]):
            case "insert" | "replace" as verb:
                yield self.insert(verb.upper(), chance.randrange(KEYS), wholly=False, session=lax)
            case "update" if columns:
                chosen = chance.sample(columns, chance.randrange(1, 1 + min(3, len(columns))))
                sets = tuple(f"{one} = {self._value(one)}" for one in chosen)
                yield Statement("UPDATE {t} SET ", sets, where, lax)
            case "delete":
                yield Statement("DELETE FROM {t}" + (where or " LIMIT 1"))
            case _:
                before, after = chance.randrange(KEYS), chance.randrange(KEYS)
                yield Statement(f"UPDATE {{t}} SET {key} = {after} WHERE {key} = {before}")

    def insert(self, verb: str, number: int, *, wholly: bool, session: Session = STRICT) -> Statement:
        """A row, whose key is this number; `wholly`: most columns have a value."""
        chosen = [one for one in self.known.columns if self.chance.random() < (0.95 if wholly else 0.7)]
        sets = [f"{self.known.key[0]} = {number}", *(f"{one} = {self._value(one)}" for one in chosen)]
        return Statement(f"{verb} INTO {{t}} SET ", tuple(sets), "", session)

    def _begin(self) -> None:
        pick = self._pick
        self._defined = {}
        mode = pick(STRICT_MODES) if self.chance.random() < 0.35 else pick(LAX_MODES)
        if self.chance.random() < 0.25:
            mode = ",".join(filter(None, [mode, pick(OTHER_MODES)]))
        plain = self.chance.random() < 0.8
        self._session = Session(mode, pick(ZONES), pick(CLIENTS), plain) if self.chance.random() < 0.85 else STRICT

    def _statement(self, head: str, parts: Sequence[str], tail: str = "") -> Statement:
        return Statement(head, tuple(parts), tail, self._session, dict(self._defined))

    def _pick(self, of: Sequence[T]) -> T:
        return self.chance.choice(of)

    def _new_name(self) -> str:
        self._named += 1
        return f"c{self._named}"

    def _any_name(self) -> str:
        """A new name, or seldom one that is taken."""
        return self._pick([self._new_name(), self._new_name(), *self.known.columns])

    def _table_options(self) -> str:
        charset = self._pick(types.NARROW if self._is_narrow else [*types.FREQUENT, *types.CHARSETS])
        collation = self._pick(types.CHARSETS[charset])
        if self._is_narrow:
            return f" DEFAULT CHARSET {charset} COLLATE {collation}"
        return self._pick(["", f" DEFAULT CHARSET {charset}", f" DEFAULT CHARSET {charset} COLLATE {collation}"])

    def _value(self, column: str) -> str:
        drawn = types.draw_value(self.chance, self.known.columns[column], self._members.get(column, ()))
        return self._pick([drawn] * 8 + ["NULL", "DEFAULT"])

    def _definition(self, name: str, known: str = "") -> str:
        """A type, with all that may follow it. `known` is the column's name so far; then it often is a related type."""
        chance, before = self.chance, self._members.get(known, ())
        plain = self._is_simple and bool(self.known.columns)
        wide = self._is_narrow and not self.known.columns
        if known and chance.random() < (0.9 if self._is_simple else 0.6):
            members = types.draw_members(chance, before)
            type_ = types.draw_related(chance, self.known.columns[known], members, plain=plain)
        else:
            family, members = types.draw_family(chance, self._aim), types.draw_members(chance)
            type_ = types.draw_type(chance, family, members, plain=plain, wide=wide)
        is_listed = types.name_of(type_) in {"enum", "set"}
        if is_listed:
            self._defined[name] = members
        members = members if is_listed else ()
        null = self._pick(["", "", " NULL", " NOT NULL", "" if self._is_simple and known else " NOT NULL"])
        escapes, double = "NO_BACKSLASH" not in self._session.mode, "ANSI_QUOTES" not in self._session.mode
        draw = partial(types.draw_default, chance, type_, members, escapes=escapes, double=double)
        default = draw(plain=plain)
        while self._is_simple and any(one in default for one in COMPUTED) and chance.random() < 0.9:
            default = draw(plain=True)
        if type_ == "SERIAL":
            null = default = ""
        elif default == "" and not self._is_simple and chance.random() < 0.1:
            default = self._pick([" SERIAL DEFAULT VALUE", " AUTO_INCREMENT UNIQUE", " UNIQUE AUTO_INCREMENT"])
        attributes = ["", " COMMENT 'what 😀'", "", f" CHECK ({name} <> '7')", " INVISIBLE", " UNIQUE"]
        attribute = self._pick([""] * 10 + attributes[: 2 if self._is_simple else None])
        return f"{type_}{null}{default}{attribute}" if chance.random() < 0.8 else f"{type_}{default}{null}{attribute}"

    def _generated(self, name: str, columns: Mapping[str, str]) -> str:
        """A generated column of one of these, which have these types.

        What depends on the session is stored: a VIRTUAL column of that kind has no value of its own to be equal to.
        """
        steady = [one for one, type_ in columns.items() if types.name_of(type_) not in types.SHOWN_IN_MANY_WAYS]
        column = self._pick(steady if steady and self.chance.random() < 0.8 else [*columns])
        text, number = f"{self._pick(['VARCHAR(300)', 'TEXT'])}", self._pick(["INT", "BIGINT", "DOUBLE"])
        virtual = [f"LENGTH({column})", f"CHAR_LENGTH({column})", f"{column} IS NULL"]
        if self._pick([False, False, True]):
            return f"{name} {number} AS ({self._pick(virtual)}) VIRTUAL"
        expression, type_ = self._pick(
            [
                *((one, number) for one in (*virtual, f"{column} + 0", f"{column} = 'A'")),
                *((f"HEX({column})", text), (f"CAST({column} AS CHAR(200))", text)),
                *((f"CONCAT({column}, 'x')", text), (f"{column}", text)),
                *((f"COALESCE({column}, 'none')", text), (f"UPPER({column})", text), (f"REPEAT({column}, 2)", text)),
            ]
        )
        return f"{name} {type_} AS ({expression}) STORED"

    def _action(self) -> str:
        """One action of an ALTER TABLE."""
        kinds = ["ADD"] * 7 + ["MODIFY"] * 10 + ["CHANGE"] * 4 + ["DROP", "RENAME", "ADDS", "nothing"]
        kinds += ["MODIFY"] * 10 if self._is_simple else [""] * 6
        kind = self._pick(kinds)
        column = self._pick([*self.known.columns, *self.known.bases * 2] or ["none"])
        if kind == "ADDS":
            names = [self._new_name() for _ in range(self._pick([1, 2, 3]))]
            return f"ADD ({', '.join(f'{name} {self._definition(name)}' for name in names)})"
        if kind == "nothing":
            harmless = ["ENGINE = InnoDB", "FORCE", "COMMENT = '😀'", "ALGORITHM = COPY", f"ADD INDEX ({column})"]
            return self._pick(harmless)
        return self._of_column(kind, column) if kind else self._of_table(column)

    def _of_column(self, kind: str, column: str) -> str:
        to = self._any_name()
        match kind:
            case "DROP":
                return f"DROP COLUMN {column}"
            case "RENAME":
                self._defined[to] = self._members.get(column, ())
                return f"RENAME COLUMN {column} TO {to}"
            case "CHANGE" if self.known.columns:
                return f"CHANGE {column} {to} {self._definition(to, column)}{self._place()}"
            case "MODIFY" if self.known.columns:
                return f"MODIFY {column} {self._definition(column, column)}{self._place()}"
        return f"ADD {self._pick(['', 'COLUMN '])}{to} {self._definition(to)}{self._place()}"

    def _of_table(self, column: str) -> str:
        """Mostly what no copy follows."""
        known, pick = self.known, self._pick
        charset = pick([*types.FREQUENT, *types.CHARSETS])
        keys = pick([column, f"{known.key[0]}, {column}"])
        type_ = pick(["INT", "BIGINT UNSIGNED", "VARCHAR(12)", "BIGINT AUTO_INCREMENT"])
        actions = [
            f"{pick(['CONVERT TO', 'DEFAULT'])} CHARACTER SET {charset}",
            pick([f"ORDER BY {column}", "AUTO_INCREMENT = 77", "ALGORITHM = INPLACE", "ROW_FORMAT = COMPACT"]),
            f"DROP PRIMARY KEY, ADD PRIMARY KEY ({keys})",
            f"MODIFY {known.key[0]} {type_}",
            f"RENAME COLUMN {known.key[0]} TO {pick(['id', 'number'])}",
        ]
        if known.columns:
            actions.append(pick([f"ALTER {column} SET DEFAULT {self._value(column)}", f"ALTER {column} DROP DEFAULT"]))
            actions.append(
                f"ADD {self._generated(self._new_name(), {**known.generated, **known.columns})}{self._place()}"
            )
        if known.generated:
            generated = pick([*known.generated])
            actions.append(pick([f"DROP {generated}", f"MODIFY {self._generated(generated, {column: ''})}"]))
        return pick(actions)

    def _place(self) -> str:
        after = self._pick([*self.known.columns, *self.known.key, *self.known.generated])
        return self._pick(["", "", "", " FIRST", " AFTER "]).replace("AFTER ", f"AFTER {after}")

    def _barrier(self) -> Iterator[Statement]:
        """DDL that concerns the whole table."""
        rows, key = self.chance.randrange(KEYS), self.known.key[0]
        for text in self._pick(
            [
                ("TRUNCATE {t}",),
                (
                    "CREATE TABLE {t}_gho LIKE {t}",
                    f"INSERT INTO {{t}}_gho SELECT * FROM {{t}} LIMIT {rows}",
                    "RENAME TABLE {t} TO {t}_del, {t}_gho TO {t}",
                    "DROP TABLE {t}_del",
                ),
                ("DROP TABLE {t}", "CREATE TABLE {t} (id INT PRIMARY KEY, c1 BIGINT, c2 VARCHAR(9))"),
                (f"ALTER TABLE {{t}} PARTITION BY KEY ({key}) PARTITIONS {self.chance.randrange(1, 4)}",),
            ]
        ):
            yield self._statement(text, ())
