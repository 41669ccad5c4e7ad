"""A local server for the demo and the tests. It listens on loopback; its data is removed at the end of its context.

Three origins of a server are tried in this order: a program of this machine, a container, Debian's packages.
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
# The folder in which distributions install servers. It is often not on the PATH of users other than root.
SYSTEM_PROGRAMS = Path("/usr/sbin")
START_SECONDS = 120.0

# Options whose values a data folder is made with: a server with another value does not start on this folder.
_LASTING_OPTIONS = {
    "--lower_case_table_names",
    "--innodb_page_size",
    "--innodb_data_file_path",
    "--innodb_undo_directory",
}

# A launcher: a small Python program that asks the kernel to end it with its parent, even if the parent is killed, and
# that then becomes the server by exec. A `preexec_fn` of subprocess could do the same, but it would run Python code in
# a fork of this process, which is not safe because the process has threads (Spark's).
_DIE_WITH_PARENT = """
import ctypes, os, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(sys.argv[1]))
if os.getppid() == int(sys.argv[2]):  # otherwise the parent has ended before the request to the kernel
    os.execv(sys.argv[3], sys.argv[3:])
"""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A running server and its administrator's account. `origin` says where the server comes from.

    `pid` is None for a server in a container.
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    version: str
    origin: str
    pid: int | None
    flavor: Flavor = field(default=MYSQL, repr=False)

    def connect(self, database: str | None = None, *, autocommit: bool = True) -> pymysql.Connection:
        """A connection of the administrator, which the caller closes."""
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            database=database,
            autocommit=autocommit,
        )


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
    """Run a new server with a binlog, and with its data under `folder`.

    At the end of the block the server is ended, and its data is removed.

    `program` is the path of a server to run. With `in_container`, the flavor's container image is run. Without either,
    the three origins are tried. The folder `prepared` saves the time of callers that start many servers: the first
    server leaves a new data folder in it, and later servers of the same program begin with a copy of this data folder.
    These servers have the same password. Several processes may share the folder.

    `settings` are added to the flavor's settings, or replace settings of the same name. An empty value stands for an
    option without a value, such as `skip_log_bin`. If `port` is None, any free port is taken. `say` is called with a
    line before each slow step. If the thread that entered the context ends, or this process is killed, the server
    ends, too. Raises OperatorNeeded if no origin has a server, with the reason for each origin, or if `folder` or
    `port` cannot be used.
    """
    with reserved_port(port):
        pass  # raises an error if the port is in use, because no server could listen on it
    folder = folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()  # raises an error if the folder cannot be written
    except OSError as error:
        raise OperatorNeeded(f"{folder} cannot be written: {error.strerror}") from error
    added = {name.replace("-", "_"): value for name, value in (settings or {}).items()}
    options = [f"--{name}={value}" if value else f"--{name}" for name, value in {**flavor.settings, **added}.items()]
    # by the text that becomes the server's `origin`: a function that starts a server from there
    starts: dict[str, Callable[[str], AbstractContextManager[LocalServer]]] = {
        f"a {flavor.program} on PATH": lambda origin: _run_program(
            flavor, _installed_command(flavor), origin, folder, options, port, prepared
        ),
        "a container": lambda origin: _run_container(flavor, origin, options, port, say),
        "Debian's packages": lambda origin: _run_program(
            flavor, debian.unpacked_command(flavor, folder, say), origin, folder, options, port, prepared
        ),
    }
    if program is not None:
        starts = {
            str(program): lambda origin: _run_program(
                flavor, _command_in_folder(flavor, program), origin, folder, options, port, prepared
            )
        }
    elif in_container:
        starts = {f"the image {flavor.image}": lambda origin: _run_container(flavor, origin, options, port, say)}
    reasons = []
    with ExitStack() as stack:
        for origin, start in starts.items():
            try:
                server = stack.enter_context(start(origin))
                break
            except OperatorNeeded as reason:
                reasons.append(f"{origin}: {reason}")
        else:  # no origin has a server
            raise OperatorNeeded(
                f"no {flavor.name} can be started here ({'; '.join(reasons)}). Install {flavor.wanted}, or start "
                "Docker, or run on Debian with its package archive in reach"
            )
        yield server


def _command_in_folder(flavor: Flavor, program: Path) -> list[str]:
    """The command that runs the server at this path. Raises OperatorNeeded if it is no server that `flavor` wants."""
    command = [str(program), "--no-defaults"]
    debian.assert_runs(flavor, command)
    return [*command, f"--basedir={program.parents[1]}"]


def _installed_command(flavor: Flavor) -> list[str]:
    """The command that runs the server installed on this machine.

    Raises OperatorNeeded if no server of this flavor and of a supported version is installed.
    """
    on_path = shutil.which(flavor.program)
    in_system = str(SYSTEM_PROGRAMS / flavor.program)
    reasons = []
    programs = [in_system] if on_path is None else [on_path, in_system]
    for program in dict.fromkeys(programs):  # each program once
        if not os.access(program, os.X_OK):
            continue
        command = [program, "--no-defaults"]
        try:
            debian.assert_runs(flavor, command)
        except OperatorNeeded as reason:
            reasons.append(f"{program} {reason}")
        else:
            return command
    raise OperatorNeeded("; ".join(reasons) or "none is installed")


@contextmanager
def _run_program(
    flavor: Flavor,
    command: list[str],
    origin: str,
    folder: Path,
    options: list[str],
    port: int | None,
    prepared: Path | None,
) -> Iterator[LocalServer]:
    """Run a server by this command, on a data folder that is newly set up, or that is copied from `prepared`."""
    if os.geteuid() == 0:  # without this option, servers refuse to run as root
        command = [*command, "--user=root"]
    if flavor.is_mariadb:
        command = [*command, f"--lc_messages_dir={mariadb.share_folder(command)}"]
    with _new_folder(folder) as home, reserved_port(port) as chosen:
        log = home / "server.log"
        if prepared is None:
            password = _set_up_data(flavor, [*command, *options], home, log)
        else:
            password = _copy_prepared_data(flavor, command, options, prepared, home)
        # The server has no Unix socket: no client needs one, and the path of a socket must be short.
        network = [
            f"--bind_address={HOST}",
            f"--port={chosen}",
            "--socket=",
            f"--pid_file={home / 'mysqld.pid'}",
        ]
        with child([*command, *options, *_folder_options(home), *network], log) as process:

            def log_if_ended() -> str | None:
                return None if process.poll() is None else _read_log(log)

            version = _await_answer(log_if_ended, chosen, password)
            yield LocalServer(HOST, chosen, USER, password, version, origin, pid=process.pid, flavor=flavor)


def _folder_options(home: Path) -> list[str]:
    return [f"--datadir={home / 'data'}", f"--tmpdir={home}"]


def _set_up_data(flavor: Flavor, command: list[str], home: Path, log: Path) -> str:
    """Set up the data folder of a new server in `home`. Returns the administrator's password."""
    password = secrets.token_urlsafe(16)
    sql_file = home / "first.sql"
    sql_file.touch(mode=0o600)  # before the password is written into it
    identified = f"IDENTIFIED BY '{password}'"
    accounts = (
        f"CREATE USER IF NOT EXISTS '{USER}'@'{HOST}';\n"
        f"ALTER USER '{USER}'@'localhost' {identified}, '{USER}'@'{HOST}' {identified};\n"
        f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'{HOST}' WITH GRANT OPTION;\n"
    )
    if flavor.is_mariadb:
        (home / "data" / "mysql").mkdir(parents=True)
        statements = mariadb.system_tables_sql(mariadb.share_folder(command)) + accounts
        setup_options = ["--bootstrap"]
    else:
        statements = accounts
        setup_options = ["--initialize-insecure", f"--init_file={sql_file}"]
    sql_file.write_text(statements)  # MySQL opens the file by its name, MariaDB reads it from stdin
    command = [*command, *_folder_options(home), *setup_options, "--skip_log_bin"]
    with sql_file.open() as stdin, child(command, log, stdin=stdin) as setup:
        if setup.wait() != 0:
            raise OperatorNeeded(f"its data folder cannot be set up: {_first_error(_read_log(log))}")
    sql_file.unlink()
    return password


def _copy_prepared_data(flavor: Flavor, command: list[str], options: list[str], prepared: Path, home: Path) -> str:
    """Copy the prepared data folder for this command into `home`. Returns the administrator's password.

    The first call for a command sets up the data folder that later calls copy.
    """
    # a data folder fits only servers with the same lasting options; their other options may differ
    lasting_options = [option for option in options if option.partition("=")[0] in _LASTING_OPTIONS]
    template = prepared / hashlib.sha256("\0".join([*command, *lasting_options]).encode()).hexdigest()[:16]
    prepared.mkdir(parents=True, exist_ok=True)
    with debian.locked(template.with_suffix(".lock")):  # processes that share the folder would all set it up
        if not template.exists():
            with _new_folder(prepared) as new:
                flavor_options = [f"--{name}={value}" for name, value in flavor.settings.items()]
                password = _set_up_data(flavor, [*command, *flavor_options, *lasting_options], new, new / "server.log")
                # remove the server's id and keys, so that each server on a copy makes its own when it starts
                for identity in (new / "data" / "auto.cnf", *(new / "data").glob("*.pem")):
                    identity.unlink(missing_ok=True)
                (new / "password").write_text(password)
                new.rename(template)  # renamed at the end, so that a folder of this name is always complete
    shutil.copytree(template / "data", home / "data")
    return (template / "password").read_text()


@contextmanager
def _run_container(
    flavor: Flavor, origin: str, options: list[str], port: int | None, say: Say
) -> Iterator[LocalServer]:
    """Run the official container image, until the end of the block."""
    password = secrets.token_urlsafe(16)
    with reserved_port(port) as chosen:
        pass  # the port is released at once, because Docker binds it itself
    with container.run_container(flavor, (HOST, chosen), password, options, say) as ended:
        version = _await_answer(ended, chosen, password)
        yield LocalServer(HOST, chosen, USER, password, version, origin, pid=None, flavor=flavor)


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A new folder that only this user can read. It is removed at the end of the block."""
    home = Path(tempfile.mkdtemp(prefix="mysqld-", dir=folder))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def reserved_port(port: int | None) -> Iterator[int]:
    """A free port of the loopback: `port`, or any free port if it is None. Raises OperatorNeeded if `port` is in use.

    On Linux, the port stays reserved for a server that is started within the block: a socket that is bound to the port
    keeps other programs from getting it. The server can listen on the port nevertheless, because both sockets ask for
    address reuse.
    """
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            reservation.bind((HOST, port or 0))
        except OSError as error:
            raise OperatorNeeded(f"port {port} cannot be had: {error.strerror}") from error
        chosen: int = reservation.getsockname()[1]
        if sys.platform != "linux":  # on other systems a server cannot listen on a port that another socket has bound
            reservation.close()
        yield chosen


@contextmanager
def child(
    command: list[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    stdin: TextIO | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program within the block; its output is added to `log`. It is killed at the end of the block.

    On Linux it is also killed when this process ends. The program is not shut down cleanly, which would take time,
    because its data is not needed any more. `environment` is added to the environment of this process.
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
            start_new_session=True,  # so that Ctrl-C in the terminal interrupts only this process
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def await_start(process: "subprocess.Popen[bytes]", log: Path, ask: Callable[[], object], seconds: float) -> None:
    """Wait until a call of `ask` raises no error.

    Raises OperatorNeeded, with the last line of the log, if the process ends before that, or after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(Exception):
            ask()
            return  # `ask` has raised no error
        time.sleep(0.05)
    last = (log.read_text(errors="replace").strip().splitlines() or ["nothing in its log"])[-1]
    raise OperatorNeeded(f"{log.stem} does not start: {last}")


def _await_answer(ended: container.Ended, port: int, password: str) -> str:
    """Wait until the administrator can log in over TCP. Returns the server's version.

    `ended` returns None while the server runs, and the server's log if it has ended. Raises OperatorNeeded if the
    server has ended, or does not answer within `START_SECONDS`.
    """
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


def _read_log(log: Path) -> str:
    return log.read_text(errors="replace")


def _first_error(log: str) -> str:
    """The first error in a server's log, because later errors follow from it; without an error, the last line."""
    lines = log.splitlines()
    errors = [line for line in lines if re.search(r"\[ERROR\]|^ERROR: ", line)]
    return (errors or lines[-1:] or ["nothing in its log"])[0]
