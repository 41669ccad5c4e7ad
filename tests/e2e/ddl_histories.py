"""Histories of many tables that share their runs: statements by chance or as they were told, each compared after a run.

A history that ends with a difference is told again with fewer statements and parts of them, as long as it still does:
all candidates of a step are tables that share their runs, too.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol

import pymysql

from lakeingest.config.tables import TableOptions
from tests.e2e.ddl_grammar import STRICT, Grammar, Known, Session, Statement
from tests.e2e.exact import comparer
from tests.e2e.pipe import Pipe

GONE = {2006, 2013}  # of the server
COMPARED = 5  # rounds, each with a run
ASIDE = "gho", "del"  # ends of the names of tables that are no copies
SHRINKS = 40  # steps, each with some runs
Rounds = tuple[tuple[Statement, ...], ...]  # a run, and a comparison, after each


class Table(Protocol):
    """A table with a history. `rounds` is what the server accepted so far."""

    name: str
    rounds: list[list[Statement]]
    is_there: bool

    def next(self) -> Iterator[Statement]:
        """The statements up to the next run."""

    def accepted(self, statement: Statement, known: Known) -> None:
        """The server has done it."""


@dataclass
class Drawn:
    """A history by chance."""

    seed: int
    rounds: list[list[Statement]] = field(default_factory=list)
    is_there: bool = True

    def __post_init__(self) -> None:
        self.grammar = Grammar(Random(self.seed))
        self.name = f"{'z' if self.seed % 3 else 't'}{self.seed}"

    def next(self) -> Iterator[Statement]:
        """The table and its rows at first, then DDL and DML."""
        is_first = not self.rounds
        self.rounds.append([])
        return self.grammar.created() if is_first else self.grammar.round()

    def accepted(self, statement: Statement, known: Known) -> None:
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

    def accepted(self, statement: Statement, _: Known) -> None:
        """It is part of the history."""
        self.rounds[-1].append(statement)


class Writer:
    """A client that runs the statements of tables."""

    def __init__(self, pipe: Pipe) -> None:
        settings = pipe.administrator
        self._session = STRICT
        self._connection = pymysql.connect(
            host=settings.host,
            port=settings.port,
            user=settings.user,
            password=settings.password.get_secret_value() if settings.password else "",
            database=pipe.database,
            charset="utf8mb4",
            autocommit=True,
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
                    table.accepted(statement, self._known(name))

    def drop(self, tables: Iterable[Table]) -> None:
        """No run copies them any more."""
        for table in tables:
            self._runs(Statement("DROP TABLE IF EXISTS {t}"), table.name)

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
                "SELECT column_name, column_type, column_key = 'PRI', generation_expression <> ''"
                " FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s"
                " ORDER BY ordinal_position",
                (name,),
            )
            found = cursor.fetchall()
        return Known(
            {str(column): str(type_) for column, type_, in_key, made in found if not in_key and not made},
            tuple(str(column) for column, _, in_key, _ in found if in_key),
            tuple(str(column) for column, _, _, made in found if made),
        )


def prepared(pipe: Pipe) -> Pipe:
    """The pipeline with the options that the tables of a history have.

    Those whose names begin with z keep zero dates as text; the others stop at one.
    """
    tables = pipe.config.tables
    texts = TableOptions.model_validate({"types": {"zero_dates": "string"}})
    aside = tuple(f"{pipe.database}.*_{end}" for end in ASIDE)
    chosen = {"options": {**tables.options, "*.z*": texts}, "exclude": aside}
    pipe.config = pipe.config.model_copy(update={"tables": tables.model_copy(update=chosen)})
    return pipe


def play(pipe: Pipe, writer: Writer, tables: Sequence[Table], rounds: int = COMPARED) -> dict[str, str]:
    """What differs, by the names of tables: each has so many rounds, with a run and a comparison after each.

    A table with a difference has no more, and one that may stop neither; it is dropped.
    """
    found = dict[str, str]()
    for _ in range(rounds):
        left = [one for one in tables if one.is_there]
        writer.write(left)
        now = differences(pipe, left)
        writer.drop(one for one in left if one.name in now)
        found |= {name: words for name, words in now.items() if words}
    return found


def differences(pipe: Pipe, tables: Sequence[Table]) -> dict[str, str]:
    """After a run while nobody writes: what differs, by the names of tables; '' where a table stopped and may."""
    stopped, found = ends(pipe, [table.name for table in tables]), dict[str, str]()
    with comparer(pipe) as compared:
        for table in tables:
            error = stopped.get(table.name)
            if error is None:
                words = compared.difference(table.name)
            elif compared.may_stop(table.name, error):
                words, table.is_there = "", False
            else:
                words = f"it stops: {type(error).__name__}: {error}"
            if words or not table.is_there:
                found[table.name], table.is_there = words, False
    return found


def ends(pipe: Pipe, names: Sequence[str]) -> dict[str, Exception]:
    """The tables that stop in a run, each with its error; all of them where it ends for tables of both halves."""
    try:
        pipe.run(*names)
    except Exception as error:  # noqa: BLE001 - part of the report
        stopped = dict.fromkeys(names, error)
    else:
        return {}
    if len(names) == 1:
        return stopped
    middle = len(names) // 2
    halves = ends(pipe, names[:middle]), ends(pipe, names[middle:])
    return stopped if all(len(one) > 1 for one in halves) else halves[0] | halves[1]


def shrunk(pipe: Pipe, writer: Writer, name: str, rounds: Rounds, words: str) -> tuple[Rounds, str]:
    """A shorter history that ends with a difference, too, and that difference."""
    best = rounds
    for step in range(SHRINKS):
        tried = [{edit} for edit in _edits(best)]
        good = _failing(pipe, writer, f"{name}x{step}a", best, tried)
        if not good:
            break
        edits = [edit for number in good for edit in tried[number]]
        together = [set(edits[: count + 1]) for count in range(len(edits))]
        good_together = _failing(pipe, writer, f"{name}x{step}b", best, together)
        number = max(good_together, default=0)
        words = good_together[number] if number in good_together else good[min(good)]
        best = _edited(best, together[number])
    return best, words


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


def _failing(pipe: Pipe, writer: Writer, name: str, rounds: Rounds, tried: Sequence[set[Edit]]) -> dict[int, str]:
    """The numbers of those histories that end with a difference, and the differences."""
    tables = [Told(f"{name}{number}", _edited(rounds, edits)) for number, edits in enumerate(tried)]
    found = play(pipe, writer, tables, len(rounds))
    writer.drop(tables)
    return {number: found[table.name] for number, table in enumerate(tables) if table.name in found}


def shown(rounds: Rounds, table: str) -> str:
    """The statements, with the settings of sessions where these are not the usual ones."""
    lines: list[str] = []
    for statements in rounds:
        for statement in statements:
            settings = f"  -- {'; '.join(statement.session.settings)}" if statement.session != STRICT else ""
            lines.append(f"{statement.text(table)};{settings}")
        lines.append("-- a run")
    return "\n".join(lines)
