"""Row filters: the conditions of users on the rows that are copied, in a part of SQL whose meaning is known exactly.

A filter compares columns with literals, and combines comparisons by AND, OR and NOT. As in SQL, a comparison with NULL
is neither true nor false, and a row is copied if the condition is true. What a server may understand in another way
than we do is refused: functions, numbers as texts, and so on. A comparison of texts names its collation, so that DDL
never changes its meaning.
"""

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import NoReturn

from lakeingest.core.tables.keys import quote
from lakeingest.core.tables.schema import INTEGERS, NULL_DATES, Column, Kind

Literal = Decimal | str
Operator = str  # one of OPERATORS

OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
DIGITS_MAX = 38  # of a number
# Collations in which two texts are equal only if they have the same characters. In the collations of the first set,
# spaces at the end of a text do not count; in those of the other two sets, they do
_PADDED = frozenset({"ascii_bin", "latin1_bin", "utf8_bin", "utf8mb3_bin", "utf8mb4_bin"})
_NOT_PADDED = frozenset({"utf8mb4_0900_bin"})
_NOT_PADDED_OF_MARIADB = frozenset(name.replace("_bin", "_nopad_bin") for name in _PADDED)
_DATE, _DATETIME = r"\d{4}-\d\d-\d\d", r"\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d{1,6})?)?"
_TIMES = {Kind.DATE: _DATE, Kind.DATETIME: _DATETIME, Kind.TIMESTAMP: _DATETIME}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?![\w.]))|(?P<word>[^\W\d][\w$]*)|`(?P<name>(?:[^`]|``)+)`"
    r"|'(?P<text>(?:[^'\\]|'')*)'|(?P<sign><>|!=|<=|>=|[=<>(),+-]))"
)
_KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "COLLATE", "TRUE", "FALSE", "LIKE", "XOR"})


@dataclass(frozen=True, slots=True)
class Operand:
    """A column, by its name at the source; `collation` is that of a COLLATE, or ''."""

    name: str
    collation: str = ""

    def __str__(self) -> str:
        return quote(self.name) + (f" COLLATE {self.collation}" if self.collation else "")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of a column with a literal."""

    operand: Operand
    operator: Operator
    literal: Literal

    def __str__(self) -> str:
        return f"{self.operand} {self.operator} {_sql(self.literal)}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """Whether a column has one of the values."""

    operand: Operand
    literals: tuple[Literal, ...]

    def __str__(self) -> str:
        return f"{self.operand} IN ({', '.join(map(_sql, self.literals))})"


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a column is NULL."""

    operand: Operand

    def __str__(self) -> str:
        return f"{self.operand} IS NULL"


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition."""

    term: "Condition"

    def __str__(self) -> str:
        return f"NOT ({self.term})"


@dataclass(frozen=True, slots=True)
class Both:
    """Whether all conditions are true."""

    terms: tuple["Condition", ...]

    def __str__(self) -> str:
        return " AND ".join(f"({term})" for term in self.terms)


@dataclass(frozen=True, slots=True)
class Either:
    """Whether one of the conditions is true."""

    terms: tuple["Condition", ...]

    def __str__(self) -> str:
        return " OR ".join(f"({term})" for term in self.terms)


Condition = Comparison | OneOf | IsNull | Not | Both | Either


@lru_cache(maxsize=256)
def parse(text: str) -> Condition:
    """Read a condition. `str` writes it as a text with the same meaning. Raises ValueError with the reason."""
    return _Reader(text).condition()


def operands(condition: Condition) -> frozenset[str]:
    """The names of the columns of a condition, casefolded, because the case of letters does not count."""
    return frozenset(leaf.operand.name.casefold() for leaf in _leaves(condition))


def is_padded(collation: str) -> bool:
    """Whether spaces at the end of a text do not count in this collation, which is one that a condition can have."""
    return collation in _PADDED


def faults(condition: Condition, columns: Iterable[Column], *, is_mariadb: bool) -> list[str]:
    """Why rows with these copied columns cannot be chosen by this condition; empty if they can be.

    `is_mariadb`: the server is MariaDB, which has other collations.
    """
    by_name = {column.source_name.casefold(): column for column in columns}
    found = []
    for leaf in _leaves(condition):
        name = leaf.operand.name
        column = by_name.get(name.casefold())
        reason = "no such column is copied" if column is None else _fault(leaf, column, is_mariadb=is_mariadb)
        if reason:
            found.append(f"tables.options → rows: {name}: {reason}")
    return list(dict.fromkeys(found))


def _fault(leaf: Comparison | OneOf | IsNull, column: Column, *, is_mariadb: bool) -> str:
    """Why the column cannot be compared as `leaf` does; '' if it can be."""
    if column.choice == NULL_DATES:
        return "zero dates are NULL in the copy, and not in the source; choose another zero_dates"
    if isinstance(leaf, IsNull):
        return "" if not leaf.operand.collation else "IS NULL has no COLLATE"
    literals = leaf.literals if isinstance(leaf, OneOf) else (leaf.literal,)
    if column.is_hidden:
        return "its values are hashed or masked"
    # no YEAR, because MySQL reads the number 70 as the year 1970
    is_number = column.kind in INTEGERS | {Kind.DECIMAL} and column.source_type.name != "year"
    is_flag = column.kind is Kind.BOOLEAN and column.source_type.name == "tinyint"
    if is_number or is_flag:
        if leaf.operand.collation or not all(isinstance(literal, Decimal) for literal in literals):
            return f"{column.source_type} is compared with numbers"
        return ""
    if pattern := _TIMES.get(column.kind):
        is_time = all(isinstance(literal, str) and _is_time(literal, pattern) for literal in literals)
        form = "YYYY-MM-DD" if column.kind is Kind.DATE else "YYYY-MM-DD or YYYY-MM-DD hh:mm:ss"
        return "" if is_time and not leaf.operand.collation else f"{column.source_type} is compared with '{form}'"
    if column.kind is Kind.STRING and column.source_type.name != "set":
        return _fault_of_text(leaf, column, literals, is_mariadb=is_mariadb)
    return f"{column.source_type} cannot be compared in a condition, only with IS NULL"


def _fault_of_text(leaf: Comparison | OneOf, column: Column, literals: Sequence[Literal], *, is_mariadb: bool) -> str:
    """Why a column of texts cannot be compared as `leaf` does; '' if it can be."""
    if not all(isinstance(literal, str) for literal in literals):
        return f"{column.source_type} is compared with texts"
    if isinstance(leaf, Comparison) and leaf.operator not in {"=", "<>"}:
        return "texts are compared by =, <> and IN alone"
    collation = leaf.operand.collation
    # the name of a collation begins with its charset; utf8 is an old name of utf8mb3
    prefix = collation.partition("_")[0]
    charset = "utf8mb3" if prefix == "utf8" else prefix
    known = _PADDED | (_NOT_PADDED_OF_MARIADB if is_mariadb else _NOT_PADDED)
    if collation in known and charset == column.charset:
        return ""
    if (wanted := f"{column.charset}_bin") not in _PADDED:
        return f"texts in the charset {column.charset or 'binary'} cannot be compared"
    return f"write `{column.source_name} COLLATE {wanted}`, which says how texts are compared"


def _is_time(text: str, pattern: str) -> bool:
    """Whether the text is a day of the calendar in this form, maybe with a time of day. The year 0 has no days."""
    if not re.fullmatch(pattern, text, re.ASCII):
        return False
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _leaves(condition: Condition) -> Iterator[Comparison | OneOf | IsNull]:
    """The comparisons of which a condition is made."""
    match condition:
        case Not(term):
            yield from _leaves(term)
        case Both(terms) | Either(terms):
            for term in terms:
                yield from _leaves(term)
        case _:
            yield condition


def _sql(literal: Literal) -> str:
    """The literal in SQL. No mode of a session gives it another meaning: it has no backslash and no double quotes."""
    if isinstance(literal, Decimal):
        return f"{literal:f}"
    return "'" + literal.replace("'", "''") + "'"


class _Reader:
    """Reads the tokens of a condition from left to right, with the precedence of SQL: NOT, then AND, then OR."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []  # kind and text of each token; the word of a keyword in capitals
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                rest = text[at:].strip()[:20]
                raise ValueError(f"{rest!r} is not understood; conditions compare columns with literals")
            kind, token = str(match.lastgroup), match[str(match.lastgroup)]
            if kind == "word" and token.upper() in _KEYWORDS:
                kind, token = "keyword", token.upper()
            self._tokens.append((kind, token))
            at = match.end()
        self._at = 0

    def condition(self) -> Condition:
        """Read the whole condition. Raises ValueError, as all these methods do, for a token that is not allowed."""
        found = self._either()
        if self._at < len(self._tokens):
            self._refuse("AND, OR or the end")
        return found

    def _either(self) -> Condition:
        """Read conditions with OR between them, or a single condition."""
        terms = [self._both()]
        while self._skip("keyword", "OR"):
            terms.append(self._both())
        return terms[0] if len(terms) == 1 else Either(tuple(terms))

    def _both(self) -> Condition:
        """Read conditions with AND between them, or a single condition."""
        terms = [self._negated()]
        while self._skip("keyword", "AND"):
            terms.append(self._negated())
        return terms[0] if len(terms) == 1 else Both(tuple(terms))

    def _negated(self) -> Condition:
        """Read a condition after NOT, a condition in parentheses, or a comparison."""
        if self._skip("keyword", "NOT"):
            return Not(self._negated())
        if self._skip("sign", "("):
            found = self._either()
            self._expect("sign", ")")
            return found
        return self._comparison()

    def _comparison(self) -> Condition:
        """Read a column with IS NULL, IN, BETWEEN (each perhaps with NOT), or with an operator."""
        operand = self._operand()
        if self._skip("keyword", "IS"):
            is_negated = self._skip("keyword", "NOT")
            self._expect("keyword", "NULL")
            return Not(IsNull(operand)) if is_negated else IsNull(operand)
        is_negated = self._skip("keyword", "NOT")
        if self._skip("keyword", "IN"):
            self._expect("sign", "(")
            literals = [self._literal()]
            while self._skip("sign", ","):
                literals.append(self._literal())
            self._expect("sign", ")")
            found: Condition = OneOf(operand, tuple(literals))
            return Not(found) if is_negated else found
        if self._skip("keyword", "BETWEEN"):
            least = Comparison(operand, ">=", self._literal())
            self._expect("keyword", "AND")
            found = Both((least, Comparison(operand, "<=", self._literal())))
            return Not(found) if is_negated else found
        kind, token = self._peek()
        operator = {"!=": "<>"}.get(token, token)
        if is_negated or kind != "sign" or operator not in OPERATORS:
            self._refuse("a comparison such as =, <, IN, BETWEEN or IS NULL")
        self._at += 1
        return Comparison(operand, operator, self._literal())

    def _operand(self) -> Operand:
        """Read a column, perhaps with COLLATE. Raises ValueError for a function."""
        kind, token = self._peek()
        if kind not in {"word", "name"}:
            self._refuse("a column")
        self._at += 1
        if self._peek() == ("sign", "("):
            raise ValueError(f"{token}(…): functions are not understood")
        name = token.replace("``", "`") if kind == "name" else token
        if not self._skip("keyword", "COLLATE"):
            return Operand(name)
        kind, collation = self._peek()
        if kind != "word":
            self._refuse("a collation")
        self._at += 1
        return Operand(name, collation.lower())

    def _literal(self) -> Literal:
        """Read a number, perhaps with a sign, or a text."""
        sign = next((sign for sign in "+-" if self._skip("sign", sign)), "")
        kind, token = self._peek()
        if kind == "number":
            self._at += 1
            if len(token.replace(".", "")) > DIGITS_MAX:
                raise ValueError(f"{token} has more than {DIGITS_MAX} digits")
            return Decimal(sign + token)
        if kind != "text" or sign:
            self._refuse("a number, or a text in single quotes")
        self._at += 1
        return token.replace("''", "'")

    def _peek(self) -> tuple[str, str]:
        """The kind and the text of the next token, without going past it."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "the end")

    def _skip(self, kind: str, token: str) -> bool:
        """Go past the next token if it is this one, and return whether it was."""
        is_next = self._peek() == (kind, token)
        self._at += is_next
        return is_next

    def _expect(self, kind: str, token: str) -> None:
        """Go past the next token, which must be this one."""
        if not self._skip(kind, token):
            self._refuse(token)

    def _refuse(self, wanted: str) -> NoReturn:
        """Raise ValueError: `wanted` should stand where the next token is."""
        raise ValueError(f"{self._peek()[1]}: {wanted} should come here")
