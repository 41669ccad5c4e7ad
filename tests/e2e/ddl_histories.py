"""Histories of many tables: statements by chance or as they were told; the copies are renewed and compared in between.

A history that ends with a difference is told again with fewer statements and parts of them, as long as it still does:
all candidates of a step are tables that are renewed together, too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol

import pyarrow as pa
import pymysql

from lakeingest.config import Source
from lakeingest.config.tables import TableOptions, Tables
from tests.e2e.ddl_grammar import KID, STRICT, Grammar, Known, Session, Statement
from tests.e2e.exact import ALL_ROWS, Comparer, comparer

GONE = {2006, 2013}  # of the server
COMPARED = 5  # rounds, each with a comparison
ASIDE = "gho", "del"  # ends of the names of tables that are no copies
SHRINKS = 40  # steps, each with some comparisons
# What a server imposes on sessions, in turns
MOODS: Sequence[Sequence[tuple[str, object]]] = (
    (),
    (("sql_select_limit", 2),),
    (),
    (("max_join_size", 1), ("sql_big_selects", 0)),
    (),
    (("sql_mode", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH"), ("time_zone", "+05:30")),
)
Rounds = tuple[tuple[Statement, ...], ...]  # a comparison after each


class Table(Protocol):
    """A table with a history. `rounds` is what the server accepted so far."""

    name: str
    rounds: list[list[Statement]]
    is_there: bool

    def next(self) -> Iterator[Statement]:
        """The statements up to the next run."""

    def accepted(self, statement: Statement, known: Known | None) -> None:
        """The server has done it. `known` is what it says of the table after DDL."""


@dataclass
class Drawn:
    """A history by chance."""

    seed: int
    rounds: list[list[Statement]] = field(default_factory=list)
    is_there: bool = True

    def __post_init__(self) -> None:
        self.grammar = Grammar(Random(self.seed))
        self.name = f"{'tzyw'[self.seed % 4]}{self.seed}"

    def next(self) -> Iterator[Statement]:
        """The table and its rows at first, then DDL and DML."""
        is_first = not self.rounds
        self.rounds.append([])
        return self.grammar.created() if is_first else self.grammar.round()

    def accepted(self, statement: Statement, known: Known | None) -> None:
        """The grammar goes on from there."""
        self.rounds[-1].append(statement)
        self.grammar.accepted(statement, known)


@dataclass
class Told:
    """A history that is given."""

    name: str
    given: Rounds
    rounds: list[list[Statement]] = field(default_factory=list)
    is_there: bool = True

    def next(self) -> Iterator[Statement]:
        """As given."""
        self.rounds.append([])
        return iter(self.given[len(self.rounds) - 1] if len(self.rounds) <= len(self.given) else ())

    def accepted(self, statement: Statement, _: Known | None) -> None:
        """It is part of the history."""
        self.rounds[-1].append(statement)


class Copies(Protocol):
    """What is compared with the source."""

    def renew(self, names: Sequence[str]) -> Mapping[str, Exception]:
        """Bring the copies of these tables up to date; those that stop, each with its error."""

    def rows(self, name: str) -> pa.Table:
        """The rows of a copy."""


class Writer:
    """A client that runs the statements of tables."""

    def __init__(self, administrator: Source, database: str) -> None:
        self._session = STRICT
        self._connection = pymysql.connect(
            host=administrator.host,
            port=administrator.port,
            user=administrator.user,
            password=administrator.password.get_secret_value() if administrator.password else "",
            database=database,
            charset="utf8mb4",
            autocommit=True,
            ssl_disabled=True,
            init_command=f"SET {ALL_ROWS}",
        )
        self._set(STRICT)

    def write(self, tables: Iterable[Table]) -> None:
        """The next round of each table, in turns."""
        turns = {table.name: (table, table.next()) for table in tables}
        while turns:
            for name, (table, statements) in [*turns.items()]:
                statement = next(statements, None)
                if statement is None:
                    del turns[name]
                elif self._runs(statement, name):
                    table.accepted(statement, self._known(name) if statement.is_ddl else None)

    def drop(self, tables: Iterable[Table]) -> None:
        """Nobody copies them any more."""
        for table in tables:
            self._runs(Statement(f"DROP TABLE IF EXISTS {{t}}{KID}, {{t}}"), table.name)

    def close(self) -> None:
        """No more statements."""
        self._connection.close()

    def _runs(self, statement: Statement, name: str) -> bool:
        """Whether the server accepts it."""
        self._set(statement.session)
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement.text(name))
        except pymysql.err.Error as error:
            if error.args[0] in GONE:
                raise
            return False
        return True

    def _set(self, session: Session) -> None:
        if session != self._session:
            with self._connection.cursor() as cursor:
                for setting in session.settings:
                    cursor.execute(setting)
            self._session = session

    def _known(self, name: str) -> Known:
        with self._connection.cursor() as cursor:
            cursor.execute(
                "SELECT column_name, column_type, column_key = 'PRI', COALESCE(generation_expression, '')"
                " FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s"
                " ORDER BY ordinal_position",
                (name,),
            )
            found = cursor.fetchall()
        return Known(
            {str(column): str(type_) for column, type_, in_key, made in found if not in_key and not made},
            tuple(str(column) for column, _, in_key, _ in found if in_key),
            {str(column): str(made) for column, _, _, made in found if made},
        )


def batches(first: int, count: int, size: int) -> list[range]:
    """The seeds of so many sequences, by the tables that are renewed together."""
    last = first + count
    return [range(at, min(at + size, last)) for at in range(first, last, size)]


def mood_of(seeds: range) -> Sequence[tuple[str, object]]:
    """What the server imposes on sessions meanwhile."""
    return MOODS[seeds.start // len(seeds) % len(MOODS)]


def with_options(tables: Tables, database: str) -> Tables:
    """The options that the tables of a history have.

    Those whose names begin with z or w keep zero dates as text; the others stop at one. Of those whose names begin with
    y or w, each third column is left out.
    """
    texts = TableOptions.model_validate({"types": {"zero_dates": "string"}})
    thirds = TableOptions.model_validate({"columns": {"exclude": [f"c{number}" for number in range(3, 1_000, 3)]}})
    aside = tuple(f"{database}.*_{end}" for end in ASIDE)
    chosen = {"options": {**tables.options, "*.[zw]*": texts, "*.[yw]*": thirds}, "exclude": aside}
    return tables.model_copy(update=chosen)


@dataclass(frozen=True)
class Stage:
    """Where histories are played."""

    writer: Writer
    comparer: Comparer
    copies: Copies

    def play(self, tables: Sequence[Table], rounds: int = COMPARED) -> dict[str, str]:
        """What differs, by the names of tables: each has so many rounds, with a comparison after each.

        A table with a difference has no more, and one that may stop neither; it is dropped.
        """
        found = dict[str, str]()
        for _ in range(rounds):
            left = [one for one in tables if one.is_there]
            self.writer.write(left)
            found |= self.differences(left)
            self.writer.drop(one for one in left if not one.is_there)
        return found

    def differences(self, tables: Sequence[Table]) -> dict[str, str]:
        """As `compared`, but a table that stops and may is not there any more, and without those that are equal."""
        found = self.compared(tables)
        for table in tables:
            table.is_there = table.name not in found
        return {name: words for name, words in found.items() if words}

    def compared(self, tables: Sequence[Table]) -> dict[str, str]:
        """What differs, by the names of tables, while nobody writes; '' for one that stops, and may."""
        stopped, found = self.copies.renew([name for table in tables for name in names(table)]), dict[str, str]()
        for table in tables:
            for name in names(table):
                error = stopped.get(name)
                if error is None:
                    words = self.comparer.difference(name, self.copies.rows(name))
                elif self.comparer.may_stop(name, error):
                    words = ""
                else:
                    words = f"it stops: {type(error).__name__}: {error}"
                if words:
                    found[table.name] = f"{name}: {words}"
                elif error is not None:
                    found.setdefault(table.name, "")
        return found

    def shrunk(self, name: str, rounds: Rounds, words: str) -> tuple[Rounds, str]:
        """A shorter history that ends with a difference, too, and that difference."""
        best, kind = rounds, _kind(words)
        for step in range(SHRINKS):
            tried = [{edit} for edit in _edits(best)]
            good = self._failing(f"{name}x{step}a", best, tried, kind)
            if not good:
                break
            edits = [edit for number in good for edit in tried[number]]
            together = [set(edits[: count + 1]) for count in range(len(edits))]
            good_together = self._failing(f"{name}x{step}b", best, together, kind)
            number = max(good_together, default=0)
            words = good_together[number] if number in good_together else good[min(good)]
            best = _edited(best, together[number])
        return best, words

    def _failing(self, name: str, rounds: Rounds, tried: Sequence[set["Edit"]], kind: str) -> dict[int, str]:
        """The numbers of those histories that end with a difference of this kind, and the differences.

        A history may end with another one, for example because it lacks its CREATE TABLE.
        """
        tables = [Told(f"{name}{number}", _edited(rounds, edits)) for number, edits in enumerate(tried)]
        found = self.play(tables, len(rounds))
        self.writer.drop(tables)
        differences = {number: found[table.name] for number, table in enumerate(tables) if table.name in found}
        return {number: words for number, words in differences.items() if _kind(words) == kind}


@contextmanager
def staged(source: Source, administrator: Source, database: str, copies: Copies, options: Tables) -> Iterator[Stage]:
    """A stage on a database that is there; `options` are those of its tables."""
    with closing(Writer(administrator, database)) as writer, comparer(source, database, options) as compared:
        yield Stage(writer, compared, copies)


def names(table: Table) -> list[str]:
    """The names of the tables of a history: its own, and that of a table that refers to it."""
    statements = (one for statements in table.rounds for one in statements)
    has_kid = any(one.head.startswith(f"CREATE TABLE {{t}}{KID}") for one in statements)
    return [table.name, f"{table.name}{KID}"] if has_kid else [table.name]


def _kind(words: str) -> str:
    """The name of the error by which a table stops; '' where its rows differ."""
    _, stops, error = words.partition(": it stops: ")
    return error.partition(":")[0] if stops else ""


# Places of what is left out: a round's end, a statement, a part of one, or with -1 its settings of the session
Edit = frozenset[tuple[int, ...]]


def _edits(rounds: Rounds) -> Iterator[Edit]:
    for at, statements in enumerate(rounds):
        if at < len(rounds) - 1:
            yield frozenset({(at,)})
        for number, statement in enumerate(statements):
            yield frozenset({(at, number)})
            if len(statement.parts) > 1:
                yield from (frozenset({(at, number, part)}) for part in range(len(statement.parts)))
            if statement.session != STRICT:
                yield frozenset({(at, number, -1)})


def _edited(rounds: Rounds, edits: Iterable[Edit]) -> Rounds:
    left_out = frozenset[tuple[int, ...]]().union(*edits)
    result: list[tuple[Statement, ...]] = []
    is_over = True
    for at, statements in enumerate(rounds):
        kept = tuple(
            replace(
                statement,
                parts=tuple(part for count, part in enumerate(statement.parts) if (at, number, count) not in left_out),
                session=STRICT if (at, number, -1) in left_out else statement.session,
            )
            for number, statement in enumerate(statements)
            if (at, number) not in left_out
        )
        if is_over:
            result.append(kept)
        else:
            result[-1] += kept
        is_over = (at,) not in left_out
    return tuple(result)


def shown(rounds: Rounds, table: str) -> str:
    """The statements, with the settings of sessions where these are not the usual ones."""
    lines: list[str] = []
    for statements in rounds:
        for statement in statements:
            settings = f"  -- {'; '.join(statement.session.settings)}" if statement.session != STRICT else ""
            lines.append(f"{statement.text(table)};{settings}")
        lines.append("-- compared")
    return "\n".join(lines)
