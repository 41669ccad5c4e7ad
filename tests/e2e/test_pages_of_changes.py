"""What the pages about past states, audits and caches show: each query and program runs, and gives what it says."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakeingest import Pipeline
from lakeingest.config.changelog import Changelog
from lakeingest.config.formats import table_name
from lakeingest.core.tables.schema import TableId
from tests.e2e.pipe import Pipe
from tests.e2e.test_changelog_table import Recorded
from tests.e2e.test_companion_status import list_of

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

PAGES = Path(__file__).parents[2] / "docs" / "howto"


@pytest.fixture
def shop(pipe: Pipe) -> Recorded:
    """The table of the pages with its companions, and what its source was after each statement."""
    pipe.config = pipe.config.model_copy(
        update={"history": "scd2", "changelog": Changelog(table=True, transactions=list_of(pipe))}
    )
    source = Recorded(pipe, "orders")
    pipe.sql("CREATE TABLE orders (id INT PRIMARY KEY, customer VARCHAR(9), amount INT)")
    source.sql("INSERT INTO orders VALUES (1, 'ann', 5), (2, 'bob', 6), (3, 'cy', 7), (4, 'di', NULL)")
    pipe.run()
    source.sql(
        "UPDATE orders SET amount = 50 WHERE id = 1",
        "UPDATE orders SET amount = amount + 1 WHERE id IN (2, 3)",
        "DELETE FROM orders WHERE id = 3",
        "INSERT INTO orders VALUES (5, 'ed', 9)",
        "UPDATE orders SET amount = 60 WHERE id = 1",
    )
    pipe.run()
    pipe.spark.conf.set("spark.sql.session.timeZone", "UTC")
    return source


def blocks(page: str) -> dict[str, str]:
    """The SQL of a page, by the comment with which each block begins."""
    found = re.findall(r"```sql\n-- ([\w-]+)\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    assert len(found) == (PAGES / page).read_text().count("```sql")
    return dict(found)


def asked(source: Recorded, sql: str, **values: Any) -> list[tuple[Any, ...]]:
    """What Spark answers, on the tables of this database."""
    pipe = source.pipe
    names = {
        "lake._lakeingest.transactions": table_name(pipe.config.target, TableId(list_of(pipe), "transactions")),
        **{
            f"lake.shop.{name}": table_name(pipe.config.target, TableId(pipe.database, name))
            for name in ("orders__history", "orders__changelog", "orders_past", "orders")
        },
    }
    sql = sql.format(**values)
    for old, new in names.items():
        sql = re.sub(rf"{re.escape(old)}\b", new.replace("\\", r"\\"), sql)
    return [tuple(row) for row in pipe.spark.sql(sql).collect()]


def test_any_state_is_rebuilt(shop: Recorded) -> None:
    """As of a time and of each place, what has changed since, and the last values of a deleted row."""
    sql = blocks("rebuild-any-state.md")
    for place, rows in shop.states[1:]:
        assert sorted(asked(shop, sql["rebuild-place"], position=place)) == [tuple(row.values()) for row in rows]
    place, before = shop.states[1]
    changed = asked(shop, sql["difference"], position=place)
    assert sorted(changed) == [(1, 50, 60), (2, 6, 7), (3, 7, None), (5, None, 9)]
    assert asked(shop, sql["deleted"], id=3) == [(3, "cy", 8)]
    assert asked(shop, sql["rebuild"], time=datetime.now(UTC).isoformat(sep=" ")) == []
    now = shop.states[-1][1]
    assert sorted(asked(shop, "SELECT * FROM lake.shop.orders_past")) == [tuple(row.values()) for row in now]
    asked(shop, "DROP TABLE lake.shop.orders_past")
    assert before != now


@pytest.mark.long("another page's queries on the same tables")
def test_an_audit_says_who_changed_what(shop: Recorded) -> None:
    """The life of a row, all that a transaction did, the days, and what nobody knows."""
    sql = blocks("audit-who-changed-what.md")
    life = [(how, amount, before, ended) for _, how, amount, before, _, ended in asked(shop, sql["row"], id=1)]
    assert life == [("copy", 5, None, "update"), ("update", 50, 5, "update"), ("update", 60, 50, None)]
    [(at, _, tables, count)] = [
        row
        for row in asked(shop, sql["tables"].replace("WHERE _lakeingest_position = '{position}'", ""))
        if row[3] == 4
    ]
    assert f"{shop.pipe.database}.orders" in tables
    [place] = {
        row[0]
        for row in asked(
            shop, "SELECT _lakeingest_position FROM lake.shop.orders__changelog WHERE _lakeingest_op = '+U' AND id = 2"
        )
    }
    done = [("-U", 2, "bob", 6), ("+U", 2, "bob", 7), ("-U", 3, "cy", 7), ("+U", 3, "cy", 8)]
    assert asked(shop, sql["transaction"], position=place) == done
    [(at, _, tables, count)] = asked(shop, sql["tables"], position=place)
    assert (json.loads(tables), count) == ({f"{shop.pipe.database}.orders": 4}, 4)
    assert at is not None
    days = [row[1:] for row in asked(shop, sql["days"])]
    assert [sum(column) for column in zip(*days, strict=True)] == [1, 4, 1, 0]
    unknown = {(op, origin): number for op, origin, number, _ in asked(shop, sql["unknown"])}
    assert unknown == {("RESET", None): 1, ("+I", "copy"): 4}


@pytest.mark.long("another page's queries on the same tables")
def test_a_cache_has_the_rows_of_the_source(shop: Recorded) -> None:
    """The program of the page fills it, goes on from its position, and takes the same changes again."""
    [program] = re.findall(r"```python\n(.*?)```", (PAGES / "feed-a-cache.md").read_text(), re.DOTALL)
    table = f"{shop.pipe.database}.orders"
    program = program.replace("shop.orders", table).replace("follow=True", "follow=False")
    kept: list[tuple[dict[int, int | None], str | None]] = [({}, None)]

    class Opened:
        """`Pipeline.from_yaml` of the page, which opens the pipeline of the test."""

        @staticmethod
        def from_yaml(_: str) -> Pipeline:
            """The pipeline."""
            return Pipeline(shop.pipe.config, shop.pipe.spark)

    def fill() -> dict[int, int | None]:
        names = {
            "load": lambda: (dict(kept[-1][0]), kept[-1][1]),
            "store": lambda cache, position: kept.append((dict(cache), position)),
            "Pipeline": Opened,
        }
        exec(program.replace("from lakeingest import Pipeline\n", ""), names)  # noqa: S102 - the page's own program
        return kept[-1][0]

    def in_source() -> dict[int, int | None]:
        return {row["id"]: row["amount"] for row in shop.states[-1][1]}

    assert fill() == in_source()
    before = kept[-1]
    shop.sql("UPDATE orders SET id = 40, amount = 4 WHERE id = 4", "DELETE FROM orders WHERE id = 1")
    shop.pipe.run()
    assert fill() == in_source()
    kept.append((kept[-1][0], before[1]))  # it died before it stored the position
    assert fill() == in_source()
    shop.sql("TRUNCATE TABLE orders", "INSERT INTO orders VALUES (7, 'flo', 1)")
    shop.pipe.run()
    assert fill() == in_source() == {7: 1}
