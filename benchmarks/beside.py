"""What a first copy costs the applications beside it; `python -m benchmarks.beside FOLDER [ROWS]`.

Four clients each do a transaction of 5 point reads, an update and an insert, at a fixed pace. The table prints the
median and the 99th percentile of a transaction's time while nothing is copied, and while a table is copied with
several limits of `throttle`. The copy has only the processor time that nobody else wants (SCHED_IDLE), because it
usually runs on another machine than the source.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import Manager
from pathlib import Path
from typing import Any

import numpy as np
import pymysql

from benchmarks.pipeline import document
from benchmarks.source import ORDERS, READER, administrator, serve_orders

CLIENTS = 4
PACE_SECONDS = 0.02  # between the beginnings of two transactions of a client
ROWS_OF_CLIENTS = 100_000
ALONE_SECONDS = 20.0
ROWS = "2000000"  # of the table that is copied
SETTINGS: Mapping[str, Mapping[str, Any] | None] = {
    "nothing is copied": None,
    "a copy without limits": {},
    "one chunk at a time (max_connections: 5)": {"of_source": {"max_connections": 5}},
    "threads_running: 4": {"throttle": {"threads_running": 4}},
    "mb_per_second: 20": {"throttle": {"mb_per_second": 20}},
    "mb_per_second: 5": {"throttle": {"mb_per_second": 5}},
}


def client(address: Mapping[str, Any], number: int, ended: Any) -> list[float]:
    """The seconds of each transaction until the event is set."""
    chance, taken = random.Random(number), list[float]()
    with pymysql.connect(**address, database=ORDERS.database) as connection, connection.cursor() as cursor:
        following = time.monotonic()
        while not ended.is_set():
            keys = [chance.randrange(ROWS_OF_CLIENTS) for _ in range(6)]
            began = time.monotonic()
            for key in keys[:5]:
                cursor.execute(f"SELECT v FROM app WHERE id = {key}")
                cursor.fetchall()
            cursor.execute(f"UPDATE app SET v = v + 1 WHERE id = {keys[5]}")
            cursor.execute(f"INSERT INTO log (client, v) VALUES ({number}, {keys[5]})")
            connection.commit()
            taken.append(time.monotonic() - began)
            following += PACE_SECONDS
            time.sleep(max(0.0, following - time.monotonic()))
    return taken


def measure(
    pool: ProcessPoolExecutor, ended: Any, address: Mapping[str, Any], work: Sequence[str] | None
) -> tuple[list[float], float]:
    """The transactions of all clients while a program runs (None: for some seconds), and for how long it ran."""
    ended.clear()
    clients = [pool.submit(client, address, number, ended) for number in range(CLIENTS)]
    began = time.monotonic()
    if work is None:
        time.sleep(ALONE_SECONDS)
    else:
        subprocess.run(work, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    ended.set()
    return [one for each in clients for one in each.result()], seconds


def main() -> None:
    name_of_folder, rows = [*sys.argv[1:], ROWS][:2]
    folder = Path(name_of_folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with (
        serve_orders(folder / "server", int(rows), {"innodb_buffer_pool_size": "1G"}) as server,
        administrator(server, ORDERS.database) as connection,
        Manager() as manager,
        ProcessPoolExecutor(CLIENTS) as pool,
    ):
        address = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE app (id INT PRIMARY KEY, v INT NOT NULL)")
            cursor.execute("CREATE TABLE log (id BIGINT AUTO_INCREMENT PRIMARY KEY, client INT, v INT)")
            for first in range(0, ROWS_OF_CLIENTS, 10_000):
                values = ", ".join(f"({i}, 0)" for i in range(first, first + 10_000))
                cursor.execute(f"INSERT INTO app VALUES {values}")
            connection.commit()
        ended = manager.Event()
        print("| | median ms | 99 % ms | seconds of the copy |\n|---|---|---|---|")
        for number, (name, settings) in enumerate(SETTINGS.items()):
            work = None
            if settings is not None:
                place = document(server.host, str(server.port), READER, ORDERS.database, ORDERS.name, settings)
                place["source"] |= place.pop("of_source", {})
                (folder / str(number)).mkdir(exist_ok=True)
                work = ["chrt", "-i", "0", sys.executable, "-m", "benchmarks.pipeline"]
                work += [server.host, str(server.port), READER, ORDERS.database, ORDERS.name]
                work += [str(folder / str(number)), json.dumps(place)]
            taken, seconds = measure(pool, ended, address, work)
            median, high = np.percentile(taken, [50, 99]) * 1000
            print(f"| {name} | {median:.1f} | {high:.1f} | {'' if work is None else f'{seconds:.0f}'} |", flush=True)


if __name__ == "__main__":
    main()
