"""The command line as its users meet it: exit codes, and one line that says what to do."""

import inspect
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pymysql
import pytest
import typer

from lakeingest import __version__
from lakeingest.cli import app, demo
from lakeingest.config.formats import FORMATS
from lakeingest.config.target import FormatName
from lakeingest.demo.server import LocalServer
from lakeingest.errors import BinlogGone, ConfigError, LakeIngestError
from lakeingest.exits import exit_code, message
from lakeingest.files.local import Local
from lakeingest.state import last_run, lease

# The commands of the interface, with arguments of theirs, that this version refuses.
NOT_BUILT = ["demo --show-race"]

ROOT = Path(__file__).parents[1]
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A user's environment; compiled modules are kept for this session, since each command is a process."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("pycache")), "PYTHONPATH": str(ROOT)}


@pytest.fixture
def lakeingest(environment: dict[str, str], tmp_path: Path) -> Command:
    """Call it with arguments, and variables by name: the command, run in an empty folder."""

    def call(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lakeingest", *arguments],
            cwd=tmp_path,
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


@pytest.fixture
def pipeline(tmp_path: Path) -> Callable[..., Path]:
    """Call it with the source's keys and the table pattern: a pipeline.yml in the command's folder."""

    def write(include: str = "shop.*", **source: object) -> Path:
        doc = {
            "name": "cli",
            "source": {"host": "127.0.0.1", "user": "lake", **source},
            "tables": {"include": [include]},
        }
        path = tmp_path / "pipeline.yml"
        path.write_text(json.dumps(doc))
        return path

    return write


@pytest.fixture(scope="module")
def database(mysql_server: LocalServer) -> Iterator[str]:
    """A database with one small table."""
    name = "cli_shop"
    with (
        pymysql.connect(
            host=mysql_server.host,
            port=mysql_server.port,
            user=mysql_server.user,
            password=mysql_server.password,
            autocommit=True,
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(f"CREATE DATABASE {name}")
        cursor.execute(f"CREATE TABLE {name}.orders (id INT PRIMARY KEY)")
        yield name
        cursor.execute(f"DROP DATABASE {name}")


@pytest.fixture
def on_server(pipeline: Callable[..., Path], mysql_server: LocalServer, database: str) -> Path:
    """A pipeline.yml for the small database on the shared server."""
    server = mysql_server
    return pipeline(f"{database}.*", host=server.host, port=server.port, user=server.user, password=server.password)


@pytest.fixture
def silent_port() -> Iterator[socket.socket]:
    """A server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        yield listener


def assert_error(done: subprocess.CompletedProcess[str], code: int, *named: str) -> None:
    """It ended with the code, wrote exactly one line that names these, and nothing on stdout."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("lakeingest: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.endswith("\n")
    for text in named:
        assert text in done.stderr


def poisoned(folder: Path, statement: str) -> str:
    """A PYTHONPATH on which importing pyspark runs the statement."""
    package = folder / "poison" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(statement)
    return os.pathsep.join([str(package.parent), str(ROOT)])


def refusal(line: str) -> tuple[int, str]:
    """The exit code and the message that a command line ends with."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - of whatever class
        app(line.split(), standalone_mode=False)
    answer = getattr(raised.value, "format_message", raised.value.__str__)
    return exit_code(raised.value), answer()


def test_the_version_is_shown(lakeingest: Command) -> None:
    """`--version` names the program and its version."""
    done = lakeingest("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"lakeingest {__version__}\n", "")


@pytest.mark.parametrize(
    "command", ["", "demo", "init", "check", "plan", "run", "verify", "status", "submit", "explain"]
)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_command_has_help(command: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Help is on stdout and no error."""
    assert app([*command.split(), option], standalone_mode=False) in {0, None}
    shown = capsys.readouterr()
    assert "Usage" in shown.out
    assert shown.err == ""


def test_the_demo_has_every_format() -> None:
    """`cli` writes their names again: to import `config` would make every help slower."""
    option = inspect.signature(demo).parameters["target"].annotation
    assert get_args(get_args(option)[0]) == get_args(FormatName) == tuple(FORMATS)


@pytest.mark.parametrize("line", ["--log-format json run", "run --log-format json", "--log-format json bogus"])
@pytest.mark.long("another order of the words", turn="line")
def test_an_error_in_a_log_for_programs_is_a_document(lakeingest: Command, line: str) -> None:
    """With its level, its time, the name of its runbook and the exit code; before the command and after it."""
    done = lakeingest(*line.split())
    [document] = [json.loads(text) for text in done.stderr.splitlines()]
    assert (done.returncode, done.stdout) == (2, "")
    assert (document["level"], document["exit"]) == ("error", 2)
    assert document["at"].endswith("+00:00")
    assert document["error"] == ("UsageError" if "bogus" in line else "ConfigError")
    assert "lakeingest: " not in document["message"]


@pytest.mark.parametrize("line", NOT_BUILT)
def test_what_is_not_built_yet_is_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every option of the interface that this version lacks is refused."""
    code, message = refusal(line)
    assert code == 2
    assert "not built yet" in message
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("bogus", "No such command 'bogus'"),
        ("submit lambda", "'lambda' is not one of 'emr', 'emr-serverless'"),
        ("run --bogus", "No such option: --bogus"),
        ("run -c", "'-c' requires an argument"),
        ("run --max-minutes soon", "--max-minutes"),
        ("run --max-minutes -1", "--max-minutes"),
        ("demo --rows 9", "--rows"),
        ("verify --sample 0", "--sample"),
        ("verify --sample 2", "--sample"),
        ("verify --max-seconds 0", "--max-seconds"),
        ("verify --columns a,", "--columns"),
        ("points create", "points create needs a name"),
        ("points list nightly", "points list takes no name"),
        ("points show nightly --no-wait", "--no-wait goes with"),
        ("demo here", "unexpected extra argument"),
        ("--json status", "No such option: --json"),
    ],
)
def test_a_wrong_command_line_is_usage(line: str, named: str) -> None:
    """What cannot be parsed is exit code 2 and names the part."""
    code, message = refusal(line)
    assert code == 2
    assert named in message


def test_usage_errors_are_one_line(lakeingest: Command) -> None:
    """A process ends with 2 and says why in one line."""
    assert_error(lakeingest("bogus"), 2, "bogus", "--help")


def test_two_forms_of_an_answer_are_refused() -> None:
    """Before anything is looked for."""
    two_forms = "--json and --csv are two forms of the answer: give one of them"
    assert refusal("query SELECT --csv --json") == (2, two_forms)


def test_no_command_shows_the_help(lakeingest: Command) -> None:
    """Without a command the list of commands is shown, as for a wrong command line."""
    done = lakeingest()
    assert done.returncode == 2
    assert "Usage" in done.stdout + done.stderr
    assert "lakeingest:  " not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_a_locale_does_not_have_is_printed_as_its_code(lakeingest: Command, encoding: str) -> None:
    """A name of a table, or a sign in a text, is no reason for a command to fail."""
    done = lakeingest("explain", "UnsupportedValue", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert "tables.options \\u2192 types" in done.stdout


def test_a_missing_config_is_named(lakeingest: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path comes from -c, else $LAKEINGEST_CONFIG, else it is ./pipeline.yml."""
    assert_error(lakeingest("status"), 2, "pipeline.yml", "No such file", "-c FILE")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("LAKEINGEST_CONFIG", "/etc/other.yml")
    assert refusal("run") == (2, "/etc/other.yml: No such file or directory; -c FILE names another file")
    assert refusal("verify -c /x/y.yml") == (2, "/x/y.yml: No such file or directory; -c FILE names another file")


def test_a_wrong_config_is_one_line(lakeingest: Command, pipeline: Callable[..., Path]) -> None:
    """An unknown key names its neighbour; an override is named whatever it is."""
    pipeline(hots="db")
    assert_error(lakeingest("status"), 2, "unknown key source.hots; did you mean host?")
    assert_error(lakeingest("run", "--set", "two\nlines"), 2, "wanted key=value")


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (BinlogGone("purged"), "purged (runbook: BinlogGone)"),
        (ConfigError("two\nlines"), "two lines (runbook: ConfigError)"),
        (LakeIngestError("x"), "internal error: LakeIngestError: x (--debug shows the trace; runbook: InternalError)"),
        (OSError("x"), "internal error: OSError: x (--debug shows the trace; runbook: InternalError)"),
        (typer.BadParameter("x"), "Invalid value: x (lakeingest --help)"),
        (KeyboardInterrupt(), "interrupted; the last commit stays, and the same command goes on from there"),
    ],
)
def test_an_error_of_ours_ends_with_its_runbook(error: BaseException, answer: str) -> None:
    """One line; what was typed wrong, and Ctrl-C, need none."""
    assert message(error) == answer


@pytest.mark.mysql
@pytest.mark.long("starts Python for one line")
def test_an_unknown_table_is_usage(lakeingest: Command, on_server: Path, database: str) -> None:
    """A table that the source or the patterns do not have is named; `database.table` is the only form."""
    assert_error(lakeingest("status", f"{database}.nothere"), 2, f"{database}.nothere", "tables.include")
    assert_error(lakeingest("run", "orders"), 2, "orders is not among")


def test_a_source_that_is_away_is_retried_later(
    lakeingest: Command, pipeline: Callable[..., Path], silent_port: socket.socket, tmp_path: Path
) -> None:
    """Nobody listens: exit code 75, and last_run.json says the same where a cluster loses exit codes."""
    port = silent_port.getsockname()[1]
    silent_port.close()
    pipeline(port=port)
    done = lakeingest("run")
    assert_error(done, 75, f"127.0.0.1:{port}", "away")
    answer = json.loads((tmp_path / "state" / "last_run.json").read_text())
    assert answer.pop("at").endswith("+00:00")
    assert (answer.pop("host"), answer.pop("pid") > 1) == (os.uname()[1], True)
    assert answer == {
        "following": None,
        "exit": 75,
        "error": done.stderr.removeprefix("lakeingest: ").strip(),
        "job": None,
        "caught_up": False,
        "tables": [],
        "fresh_as_of": {},
        "unusual": [],
        "lag": {},
        "published_at": {},
    }


def test_a_check_that_fails_for_one_reason_ends_with_the_runbook_of_that_reason(
    lakeingest: Command, pipeline: Callable[..., Path], silent_port: socket.socket
) -> None:
    """As the line of the condition does; the exit code is that of a check."""
    port = silent_port.getsockname()[1]
    silent_port.close()
    pipeline(port=port)
    done = lakeingest("check")
    assert (done.returncode, done.stderr) == (1, "lakeingest: not ready: connection (runbook: SourceAway)\n")
    [problem] = [line for line in done.stdout.splitlines() if line.startswith("PROBLEM")]
    assert problem.endswith("(runbook: SourceAway)")
    [problem] = [one for one in json.loads(lakeingest("check", "--json").stdout)["checked"] if one["finding"]]
    assert (problem["name"], problem["runbook"]) == ("connection", "SourceAway")


@pytest.mark.mysql
def test_a_run_that_is_refused_leaves_the_record_of_the_other_run(
    lakeingest: Command, on_server: Path, tmp_path: Path
) -> None:
    """Its own outcome is beside it; the error says when the other run last got on, and other errors do no harm."""
    state = tmp_path / "state"
    with lease.held(Local(state)):
        last_run.record(Local(state), {"exit": None, "error": None})
        before = (state / "last_run.json").read_bytes()
        done = lakeingest("run", LAKEINGEST_JOB="a token")
        assert_error(done, 75, f"pid {os.getpid()} on {os.uname()[1]}, since ", ", last progress at ", " seconds ago")
        refused = json.loads((state / "last_run.refused.json").read_text())
        assert (refused["exit"], f"lakeingest: {refused['error']}\n") == (75, done.stderr)
        assert refused["pid"] != os.getpid()
        assert last_run.of_job(Local(state), "a token") == refused
        assert_error(lakeingest("run", "--set", "source.port=1"), 75, "away")
        assert "away" in json.loads((state / "last_run.refused.json").read_text())["error"]
        assert (state / "last_run.json").read_bytes() == before
    assert_error(lakeingest("run", "--set", "source.port=1"), 75, "away")
    assert json.loads((state / "last_run.json").read_text())["exit"] == 75


@pytest.mark.mysql
def test_a_wrong_password_needs_a_person(lakeingest: Command, on_server: Path) -> None:
    """The server refuses us: exit code 3, the user is named, the password is not."""
    done = lakeingest("status", "--set", "source.password=wrong-pass")
    assert_error(done, 3, "refuses user root", "correct source.user and source.password")
    assert "wrong-pass" not in done.stderr


@pytest.mark.mysql
def test_status_needs_no_spark(lakeingest: Command, on_server: Path, database: str, tmp_path: Path) -> None:
    """Of a table that was never copied; an import of pyspark would have failed."""
    path = poisoned(tmp_path, "raise RuntimeError('pyspark was imported')")
    done = lakeingest("status", PYTHONPATH=path)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{database}.orders" in done.stdout
    assert "not copied yet" in done.stdout
    done = lakeingest("status", f"{database}.orders", "--json", PYTHONPATH=path)
    assert (done.returncode, done.stderr) == (0, "")
    [answer] = json.loads(done.stdout)
    assert answer["target"] == f"lake.{database}.orders"
    assert (answer["state"], answer["rows"], answer["position"], answer["gate"]) == ("not copied yet", 0, None, None)


SUBMITTED = {"PYSPARK_GATEWAY_PORT": "1"}  # such a run opens its session at the start


@pytest.mark.mysql
def test_a_run_without_pyspark_says_what_to_install(lakeingest: Command, on_server: Path, tmp_path: Path) -> None:
    """Spark is an extra of the package: its absence is for a person, and no bug of ours."""
    path = poisoned(tmp_path, "raise ModuleNotFoundError(\"No module named 'pyspark'\", name='pyspark')")
    assert_error(lakeingest("run", PYTHONPATH=path, **SUBMITTED), 3, "lakeingest[spark]")


@pytest.mark.mysql
def test_a_bug_of_ours_is_one_line_too(lakeingest: Command, on_server: Path, tmp_path: Path) -> None:
    """Anything unforeseen is exit code 70 in one line; --debug shows its trace before that line."""
    path = poisoned(tmp_path, "raise RuntimeError('boom\\nbang')")
    assert_error(lakeingest("run", PYTHONPATH=path, **SUBMITTED), 70, "internal error: RuntimeError: boom", "--debug")
    answer = json.loads((tmp_path / "state" / "last_run.json").read_text())
    assert answer["exit"] == 70
    assert answer["error"].startswith("internal error: RuntimeError: boom")
    done = lakeingest("--debug", "run", PYTHONPATH=path, **SUBMITTED)
    assert (done.returncode, done.stdout) == (70, "")
    assert done.stderr.startswith("  Traceback (most recent call last):")  # indented: no line of it is one of ours
    assert "internal error: RuntimeError: boom" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("sent", "code", "named"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 75, "SIGTERM")]
)
@pytest.mark.long("the other signal", only=("2",))
def test_a_signal_ends_a_run_that_hangs(
    environment: dict[str, str],
    pipeline: Callable[..., Path],
    silent_port: socket.socket,
    tmp_path: Path,
    sent: signal.Signals,
    code: int,
    named: str,
) -> None:
    """Ctrl-C is 130 and SIGTERM is 75, at once, also while a server leaves us waiting."""
    pipeline(port=silent_port.getsockname()[1])
    command = [sys.executable, "-m", "lakeingest", "run"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            with silent_port.accept()[0]:  # the client waits for a greeting from here on
                process.send_signal(sent)
                out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert_error(subprocess.CompletedProcess(command, process.returncode, out, err), code, named)
    answer = json.loads((tmp_path / "state" / "last_run.json").read_text())
    assert (answer["exit"], f"lakeingest: {answer['error']}\n") == (code, err)


@pytest.mark.long("starts Python for one line")
def test_the_demo_leaves_a_folder_of_others_alone(lakeingest: Command, tmp_path: Path) -> None:
    """A folder that is not empty and has no marker of a demo is refused and not touched."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    assert_error(lakeingest("demo", "--rows", "100", "--dir", "mine"), 3, str(folder), "not empty", "--dir")
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]
    assert (folder / "thesis.txt").read_text() == "years of work"
    code, message = refusal(f"demo --dir {folder / 'thesis.txt'}")
    assert code == 3
    assert "thesis.txt" in message


WITHOUT_JVM = """
import os, signal
from pyspark.sql import SparkSession
from lakeingest.spark.session import stop_active_session
session = SparkSession.builder.master("local[1]").getOrCreate()
jvm = session.sparkContext._gateway.proc
os.kill(jvm.pid, signal.SIGKILL)
jvm.wait()
stop_active_session()
"""


@pytest.mark.spark
@pytest.mark.long("starts Spark in a process")
def test_a_command_that_has_succeeded_ends_well_although_the_jvm_has_ended() -> None:
    """A service manager sends its SIGTERM to every process of the run, Spark's among them."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_JVM], capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr[-2000:]
