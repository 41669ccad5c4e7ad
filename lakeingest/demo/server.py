"""A local server for the demo and the tests: on loopback, with temporary data, removed at the end of its context.

Three sources are tried in order: a program of this machine, a container, Debian's packages.
"""

import hashlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import pymysql

from lakeingest.demo import container, debian, mariadb
from lakeingest.demo.flavor import MYSQL, Flavor
from lakeingest.errors import OperatorNeeded

HOST = "127.0.0.1"
USER = "root"
# Where distributions install servers; this folder is often not on the PATH of plain users.
SYSTEM_PROGRAMS = Path("/usr/sbin")
START_SECONDS = 120.0

# Options that a data folder keeps: a server with another value does not start on it.
_LASTING = {"--lower_case_table_names", "--innodb_page_size", "--innodb_data_file_path", "--innodb_undo_directory"}

# The kernel ends the program with its parent, even when the parent is killed. A launcher sets this and becomes the
# program. Without a launcher, Python would run between fork and exec, in the copy of a process with threads (Spark's).
_DIE_WITH_PARENT = """
import ctypes, os, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(sys.argv[1]))
if os.getppid() == int(sys.argv[2]):  # otherwise the parent died before the line above
    os.execv(sys.argv[3], sys.argv[3:])
"""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A running server and its administrator's account. `how` names its source; `pid` is None for a container."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    version: str
    how: str
    pid: int | None
    flavor: Flavor = field(default=MYSQL, repr=False)


@contextmanager
def local_server(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    port: int | None = None,
    say: Say = lambda _: None,
    flavor: Flavor = MYSQL,
    program: Path | None = None,
    prepared: Path | None = None,
    *,
    in_container: bool = False,
) -> Iterator[LocalServer]:
    """A new server with a binlog and its data under `folder`; at the end both are removed.

    `program` is a server in its own folder. With `in_container`, the image of the flavor is run. Without either, the
    three sources are tried. `prepared` is a folder for callers that start many servers: the first server of a program
    leaves a data folder there, just set up; later servers begin with a copy of it, and have its password.

    `settings` are added to the flavor's settings, or replace them; an empty value is an option without a value
    (`skip_log_bin`). `say` gets a line before each slow step. The server dies with the thread that entered the context,
    even if that thread is killed. Raises OperatorNeeded if no source has a server; the message has all reasons.
    """
    with reserved_port(port):
        pass  # a port that is taken ends this here, because it is taken for every source
    folder = folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OperatorNeeded(f"{folder} cannot be written: {error.strerror}") from error
    added = {name.replace("-", "_"): value for name, value in (settings or {}).items()}
    options = [f"--{name}={value}" if value else f"--{name}" for name, value in {**flavor.settings, **added}.items()]
    ways: dict[str, Callable[[str], AbstractContextManager[LocalServer]]] = {
        f"a {flavor.program} on PATH": lambda how: _program(
            flavor, _installed(flavor), how, folder, options, port, prepared
        ),
        "a container": lambda how: _container(flavor, how, options, port, say),
        "Debian's packages": lambda how: _program(
            flavor, debian.unpacked(flavor, folder, say), how, folder, options, port, prepared
        ),
    }
    if program is not None:
        ways = {
            str(program): lambda how: _program(flavor, _given(flavor, program), how, folder, options, port, prepared)
        }
    elif in_container:
        ways = {f"the image {flavor.image}": lambda how: _container(flavor, how, options, port, say)}
    reasons = []
    with ExitStack() as stack:
        for how, way in ways.items():
            try:
                server = stack.enter_context(way(how))
                break
            except OperatorNeeded as reason:
                reasons.append(f"{how}: {reason}")
        else:
            raise OperatorNeeded(
                f"no {flavor.name} can be started here ({'; '.join(reasons)}). Install {flavor.wanted}, or start "
                "Docker, or run on Debian with its package archive in reach"
            )
        yield server


def _given(flavor: Flavor, program: Path) -> list[str]:
    """The command of a server in its own folder; OperatorNeeded if it is of another flavor."""
    command = [str(program), "--no-defaults"]
    debian.require(flavor, command)
    return [*command, f"--basedir={program.parents[1]}"]


def _installed(flavor: Flavor) -> list[str]:
    """The command of this machine's own server; OperatorNeeded if it has none."""
    on_path = shutil.which(flavor.program)
    reasons = []
    for program in dict.fromkeys([*([on_path] if on_path else []), str(SYSTEM_PROGRAMS / flavor.program)]):
        if not os.access(program, os.X_OK):
            continue
        command = [program, "--no-defaults"]
        try:
            debian.require(flavor, command)
        except OperatorNeeded as reason:
            reasons.append(f"{program} {reason}")
        else:
            return command
    raise OperatorNeeded("; ".join(reasons) or "none is installed")


@contextmanager
def _program(
    flavor: Flavor,
    command: list[str],
    how: str,
    folder: Path,
    options: list[str],
    port: int | None,
    prepared: Path | None,
) -> Iterator[LocalServer]:
    """Set up a data folder, or copy a prepared one, and run the command on it."""
    if os.geteuid() == 0:
        command = [*command, "--user=root"]
    if flavor.is_mariadb:
        command = [*command, f"--lc_messages_dir={mariadb.share(command)}"]
    with _home(folder) as home, reserved_port(port) as chosen:
        log = home / "server.log"
        if prepared is None:
            password = _set_up(flavor, [*command, *options], home, log)
        else:
            password = _copy(flavor, command, options, prepared, home)
        # No Unix socket: its path would have to be short, and no client needs it.
        network = [
            f"--bind_address={HOST}",
            f"--port={chosen}",
            "--socket=",
            f"--pid_file={home / 'mysqld.pid'}",
        ]
        with child([*command, *options, *_places(home), *network], log) as process:
            version = _await_answer(lambda: None if process.poll() is None else _logged(log), chosen, password)
            yield LocalServer(HOST, chosen, USER, password, version, how, process.pid, flavor)


def _places(home: Path) -> list[str]:
    return [f"--datadir={home / 'data'}", f"--tmpdir={home}"]


def _set_up(flavor: Flavor, command: list[str], home: Path, log: Path) -> str:
    """Make the data folder of a new server. Returns its administrator's password."""
    password = secrets.token_urlsafe(16)
    sql_file = home / "first.sql"
    sql_file.touch(mode=0o600)
    secret = f"IDENTIFIED BY '{password}'"
    accounts = (
        f"CREATE USER IF NOT EXISTS '{USER}'@'{HOST}';\n"
        f"ALTER USER '{USER}'@'localhost' {secret}, '{USER}'@'{HOST}' {secret};\n"
        f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'{HOST}' WITH GRANT OPTION;\n"
    )
    if flavor.is_mariadb:
        (home / "data" / "mysql").mkdir(parents=True)
        statements, way = mariadb.system_tables(mariadb.share(command)) + accounts, ["--bootstrap"]
    else:
        statements, way = accounts, ["--initialize-insecure", f"--init_file={sql_file}"]
    sql_file.write_text(statements)
    command = [*command, *_places(home), *way, "--skip_log_bin"]
    with sql_file.open() as stdin, child(command, log, stdin=stdin) as setup:
        if setup.wait() != 0:
            raise OperatorNeeded(f"its data folder cannot be set up: {_first_error(_logged(log))}")
    sql_file.unlink()
    return password


def _copy(flavor: Flavor, command: list[str], options: list[str], prepared: Path, home: Path) -> str:
    """Copy the prepared data folder of this command; the first call makes it. Returns its administrator's password."""
    lasting = [option for option in options if option.partition("=")[0] in _LASTING]
    place = prepared / hashlib.sha256("\0".join([*command, *lasting]).encode()).hexdigest()[:16]
    if not place.exists():
        prepared.mkdir(parents=True, exist_ok=True)
        with _home(prepared) as new:
            flavor_options = [f"--{name}={value}" for name, value in flavor.settings.items()]
            password = _set_up(flavor, [*command, *flavor_options, *lasting], new, new / "server.log")
            # each server makes its own id and its own keys when it starts, so the copies must not have them
            for identity in (new / "data" / "auto.cnf", *(new / "data").glob("*.pem")):
                identity.unlink(missing_ok=True)
            (new / "password").write_text(password)
            new.rename(place)  # last: a folder of this name is complete
    shutil.copytree(place / "data", home / "data")
    return (place / "password").read_text()


@contextmanager
def _container(flavor: Flavor, how: str, options: list[str], port: int | None, say: Say) -> Iterator[LocalServer]:
    """Run the official image."""
    password = secrets.token_urlsafe(16)
    with reserved_port(port) as chosen:
        pass  # the port is released at once, because Docker binds it itself
    with container.running(flavor, (HOST, chosen), password, options, say) as ended:
        version = _await_answer(ended, chosen, password)
        yield LocalServer(HOST, chosen, USER, password, version, how, None, flavor)


@contextmanager
def _home(folder: Path) -> Iterator[Path]:
    """A new folder that only we can read, removed at the end."""
    home = Path(tempfile.mkdtemp(prefix="mysqld-", dir=folder))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def reserved_port(port: int | None) -> Iterator[int]:
    """A free loopback port: `port`, or with None any. Inside the block it is reserved for a server that we start.

    Linux lets a socket listen on a port that another socket has bound, if both ask for address reuse.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind((HOST, port or 0))
        except OSError as error:
            raise OperatorNeeded(f"port {port} cannot be had: {error.strerror}") from error
        chosen: int = holder.getsockname()[1]
        if sys.platform != "linux":
            holder.close()
        yield chosen


@contextmanager
def child(
    command: list[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    stdin: TextIO | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program within the block. It is killed at the end of the block, or when this process ends.

    A clean shutdown would take time for nothing, because the program's data is removed.
    """
    if sys.platform == "linux":
        launch = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT]
        command = [*launch, str(int(signal.SIGKILL)), str(os.getpid()), *command]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=stdin or subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=log.parent,
            env={**os.environ, **(environment or {})},
            start_new_session=True,  # Ctrl-C in the terminal reaches us first
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def await_start(process: "subprocess.Popen[bytes]", log: Path, ask: Callable[[], object], seconds: float) -> None:
    """Wait until `ask` succeeds. Raises OperatorNeeded with the log's last line if the server ends or is too slow."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(Exception):
            ask()
            return
        time.sleep(0.05)
    last = (log.read_text(errors="replace").strip().splitlines() or ["nothing in its log"])[-1]
    raise OperatorNeeded(f"{log.stem} does not start: {last}")


def _await_answer(ended: container.Ended, port: int, password: str) -> str:
    """The server's version, as soon as its administrator can log in over TCP."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with (
                pymysql.connect(
                    host=HOST, port=port, user=USER, password=password, connect_timeout=2, read_timeout=5
                ) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute("SELECT @@version")
                return str((cursor.fetchone() or ("",))[0])
        except pymysql.err.MySQLError as error:
            if (log := ended()) is not None:
                raise OperatorNeeded(f"the server ended at its start: {_first_error(log)}") from error
            if time.monotonic() > deadline:
                raise OperatorNeeded(f"no answer on port {port} in {START_SECONDS:.0f} s: {error}") from error
        time.sleep(0.05)


def _logged(log: Path) -> str:
    return log.read_text(errors="replace")


def _first_error(log: str) -> str:
    """The first error in a server's log, because later errors are consequences; else the log's last line."""
    lines = log.splitlines()
    errors = [line for line in lines if re.search(r"\[ERROR\]|^ERROR: ", line)]
    return (errors or lines[-1:] or ["nothing in its log"])[0]
