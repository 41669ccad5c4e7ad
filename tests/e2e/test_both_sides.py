"""One row on both sides, versions of a copy, and a run that is watched."""

import threading

import pytest

from lakeingest.api import Pipeline
from lakeingest.commands.both_sides import BothSides
from lakeingest.commands.run import run
from lakeingest.commands.watch import Look, watch
from lakeingest.errors import Retryable, SourceAway, UsageError
from lakeingest.notebook import replayed
from lakeingest.pipeline.events import Event, Following
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

ROWS = "INSERT INTO orders VALUES (1, 'a', 1.5), (2, 'b', NULL), (3, '<b>', 0.1)"


@pytest.fixture
def shop(pipe: Pipe) -> Pipe:
    """A table of three rows, which is copied."""
    pipe.sql("CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20), x DOUBLE)", ROWS)
    pipe.run()
    return pipe


def compared(pipe: Pipe, key: object, table: str = "orders") -> BothSides:
    """A row on both sides."""
    return Pipeline(pipe.config, pipe.spark).compare(f"{pipe.database}.{table}", key)


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_row_is_shown_on_both_sides(shop: Pipe) -> None:
    """Equal; changed since, which is no difference; absent; and really different."""
    equal = compared(shop, 3)
    assert (equal.equal, equal.has_changed, equal.source) == (True, False, {"id": 3, "v": "<b>", "x": 0.1})
    assert equal.copy == equal.source == equal.then
    assert "&lt;b&gt;" in equal._repr_html_()
    assert "source = copy as of" in equal.note

    shop.sql("UPDATE orders SET v = 'new' WHERE id = 2", "DELETE FROM orders WHERE id = 1")
    shop.sql("INSERT INTO orders VALUES (4, 'd', 4)")
    changed = compared(shop, 2)
    assert (changed.equal, changed.has_changed) == (True, True)
    assert [row[1:4] for row in changed.cells()] == [("2", "2", "2"), ("new", "b", "b"), (None, None, None)]
    assert "the source has changed the row since" in changed.note
    deleted, inserted, nowhere = (compared(shop, key) for key in (1, 4, 5))
    assert (deleted.source, deleted.copy, deleted.equal) == (None, {"id": 1, "v": "a", "x": 1.5}, True)
    assert ((inserted.source or {})["v"], inserted.copy, inserted.then, inserted.equal) == ("d", None, None, True)
    assert (nowhere.source, nowhere.copy, nowhere.equal) == (None, None, True)
    assert "neither side has the row" in nowhere.note

    shop.run()
    shop.unlogged("UPDATE orders SET x = 0.2 WHERE id = 3", "DELETE FROM orders WHERE id = 4")
    other, gone = compared(shop, [3]), compared(shop, 4)
    assert (other.equal, other.has_changed, other.differing) == (False, False, ("x",))
    assert [row[-1] for row in other.cells()] == [True, True, False]
    assert "source ≠ copy" in other.note
    assert (gone.equal, gone.differing) == (False, ("id", "v", "x"))


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_keys_of_all_types_find_their_rows(pipe: Pipe) -> None:
    """As a sample gives them: texts by the collation of the column, bytes, moments and members."""
    pipe.sql(
        "CREATE TABLE odd (a_b VARCHAR(10), b BINARY(2), t DATETIME(6), e ENUM('x', 'y'), d DECIMAL(4,2), u BIGINT"
        " UNSIGNED, m TIME(3), v JSON, PRIMARY KEY (a_b, b, t, e, d, u, m))",
        "INSERT INTO odd VALUES ('É 📚', 0x00ff, '2026-01-02 03:04:05.000006', 'y', 1.50, 18446744073709551615,"
        " '-12:30:01.5', '[1]'), ('z', 0x4142, '1999-12-31', 'x', 0, 0, 0, NULL)",
    )
    pipe.run()
    sample = Pipeline(pipe.config, pipe.spark).sample(f"{pipe.database}.odd")
    assert len(sample.keys) == 2
    for key in sample.keys:
        found = compared(pipe, key, "odd")
        assert (found.equal, found.copy) == (True, found.source)
        assert found.source is not None
    [key] = [key for key in sample.keys if key[0] == "É 📚"]
    assert compared(pipe, ["e 📚", *key[1:]], "odd").copy is not None


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_what_cannot_be_compared_is_named(pipe: Pipe) -> None:
    """A table that is not there or not published, a key of another type."""
    pipe.sql("CREATE TABLE orders (id INT PRIMARY KEY)")
    with pytest.raises(UsageError, match="nowhere"):
        compared(pipe, 1, "nowhere")
    with pytest.raises(Retryable, match="is not published yet"):
        compared(pipe, 1)
    with pytest.raises(UsageError, match="no value of"):
        compared(pipe, "x")
    with pytest.raises(UsageError, match=r"no copy yet|not published"):
        Pipeline(pipe.config, pipe.spark).rows(f"{pipe.database}.orders")


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_versions_of_a_copy_can_be_read(shop: Pipe) -> None:
    """Each has its rows and its columns, and the changelog leaves those of the last one."""
    pipeline, table = Pipeline(shop.config, shop.spark), f"{shop.database}.orders"
    shop.sql("UPDATE orders SET v = 'new' WHERE id = 2", "ALTER TABLE orders ADD c INT DEFAULT 7")
    shop.sql("DELETE FROM orders WHERE id = 3")
    shop.run()
    versions = [each.version for each in pipeline.versions(table).versions]
    assert len(versions) >= 2
    first, last = pipeline.rows(table, versions[0]), pipeline.rows(table)
    assert first.to_pydict() == {"id": [1, 2, 3], "v": ["a", "b", "<b>"], "x": [1.5, None, 0.1]}
    assert last.to_pydict() == {"id": [1, 2], "v": ["a", "new"], "x": [1.5, None], "c": [7, 7]}
    assert str(versions[0]) in pipeline.versions(table)._repr_html_()
    with pytest.raises(UsageError, match="has no version 5"):
        pipeline.rows(table, 5)
    shop.sql("INSERT INTO orders VALUES (9, NULL, NULL, 9)")
    shop.run()
    since = replayed(pipeline.changelog(table), ["id"])
    assert since.select(["id", "v", "x"]).equals(pipeline.rows(table).select(["id", "v", "x"]))


@pytest.mark.long("follows for seconds; test_watching_ends_in_time watches in every run")
def test_a_run_that_follows_is_watched(shop: Pipe) -> None:
    """Lag and throughput are seen from outside of the run; it ends when the run has ended."""
    looks: list[Look] = []
    is_following, is_over = threading.Event(), threading.Event()

    def observe(event: Event) -> None:
        if isinstance(event, Following):
            is_following.set()

    def saw(look: Look) -> None:
        looks.append(look)
        if len(looks) == 2:
            shop.sql(*(f"INSERT INTO orders VALUES ({number}, '{'x' * 20}', NULL)" for number in range(100, 150)))
        if looks[0].position is not None and look.position != looks[0].position and look.lag_bytes == 0:
            is_over.set()

    options = {"follow": True, "stopping": is_over.is_set}
    follower = threading.Thread(target=run, args=(shop.config, (), None, observe, shop.spark), kwargs=options)
    follower.start()
    assert is_following.wait(60)
    try:
        watched = watch(shop.config, max_seconds=90, every=0.2, saw=saw)
    finally:
        is_over.set()
        follower.join()
    assert looks == list(watched.looks)
    assert looks[0].is_at_work
    assert not looks[-1].is_at_work
    assert max(look.bytes_per_second or 0 for look in looks) > 0
    assert [row[:2] for row in watched.cells()] == [(f"{shop.database}.orders", 53)]
    assert "the greatest lag was" in watched.note


@pytest.mark.formats("iceberg")
def test_watching_ends_in_time(shop: Pipe) -> None:
    """Also without a run; an error of the first look is raised."""
    away = shop.config.source.model_copy(update={"port": 1})
    nothing = shop.config.tables.model_copy(update={"include": ("nowhere.*",)})
    with pytest.raises(SourceAway):
        watch(shop.config.model_copy(update={"source": away, "tables": nothing}))
    looks: list[Look] = []
    watched = watch(shop.config, max_seconds=0.5, every=0.2, saw=looks.append)
    assert 2 <= len(watched.looks) <= 3
    assert {look.lag_bytes for look in looks} == {0}
    assert not any(look.is_at_work for look in looks)
