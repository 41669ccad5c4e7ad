"""Instants are instants, whatever zone the server, its sessions and their clocks are in."""

import datetime as dt
from collections.abc import Callable, Iterator
from zoneinfo import ZoneInfo

import pytest

from lakeingest.demo.server import LocalServer
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = ("+00:00", "-08:00", "+13:30", "SYSTEM", "Test/Berlin")
TIMES = (
    "2024-03-31 01:59:59.999999",
    "2024-03-31 02:30:00",  # there is none in Berlin
    "2024-03-31 03:00:00",
    "2024-10-27 02:30:00.5",  # there are two
    "2024-10-27 03:00:00",
    "1970-01-02 00:00:00.000001",
    "2038-01-18 00:00:00",
)


def zone(start: dt.datetime, end: dt.datetime) -> Iterator[str]:
    """The statements that give a server Berlin's clock: MySQL's own tables of zones are empty without its tools."""
    changes, last = [], BERLIN.utcoffset(start)
    hours = int((end - start).total_seconds()) // 3600
    for moment in (start + dt.timedelta(hours=n) for n in range(hours)):
        offset = moment.replace(tzinfo=dt.UTC).astimezone(BERLIN).utcoffset()
        if offset != last:
            changes.append((int(moment.replace(tzinfo=dt.UTC).timestamp()), offset))
            last = offset
    yield "INSERT IGNORE INTO mysql.time_zone VALUES (901, 'N')"
    yield "INSERT IGNORE INTO mysql.time_zone_name VALUES ('Test/Berlin', 901)"
    yield "INSERT IGNORE INTO mysql.time_zone_transition_type VALUES (901, 0, 3600, 0, 'CET'), (901, 1, 7200, 1, 'S')"
    rows = ", ".join(f"(901, {at}, {int(offset == dt.timedelta(hours=2))})" for at, offset in changes)
    yield f"INSERT IGNORE INTO mysql.time_zone_transition VALUES {rows}"


@pytest.mark.long("a server with all time zones")
def test_times_of_every_zone_arrive_as_the_server_has_them(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """A server that is not in UTC, sessions that are elsewhere, hours that there are not, or twice; on both paths."""
    pipe = pipe_on(mysql_server_with(default_time_zone="+05:30", server_id="78"))
    columns = ", ".join(f"s{n} TIMESTAMP({n}) NULL, d{n} DATETIME({n})" for n in range(7))
    pipe.sql(
        *zone(dt.datetime(2023, 1, 1), dt.datetime(2025, 1, 1)),
        "SET sql_mode = ''",
        f"CREATE TABLE t (id INT PRIMARY KEY, {columns}, made TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6),"
        " changed TIMESTAMP(6) NULL ON UPDATE CURRENT_TIMESTAMP(6))",
    )
    names = ", ".join(f"s{n}, d{n}" for n in range(7))
    cases = [(name, time) for name in ZONES for time in TIMES]

    def write(start: int) -> None:
        for number, (name, time) in enumerate(cases):
            values = ", ".join(f"'{time}'" for _ in range(14))
            pipe.sql(f"SET time_zone = '{name}'", f"INSERT INTO t (id, {names}) VALUES ({start + number}, {values})")

    write(0)
    pipe.run()
    write(1000)
    pipe.sql("SET time_zone = 'Test/Berlin'", "UPDATE t SET d0 = NULL WHERE id = 3")
    pipe.run()
    pipe.assert_equal()
    rows = {int(str(row[0])): row[1:15] for row in pipe.rows("t")}
    for number, (name, time) in enumerate(cases):
        assert rows[1000 + number] == rows[number] or number == 3, (name, time)
    pipe.sql("SET time_zone = '+00:00'")
    with pipe.connection.cursor() as cursor:
        cursor.execute("SELECT s6, d6 FROM t WHERE id = %s", (1000 + cases.index(("Test/Berlin", TIMES[2])),))
        assert cursor.fetchall() == ((dt.datetime(2024, 3, 31, 1), dt.datetime(2024, 3, 31, 3)),)
