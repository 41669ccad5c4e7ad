"""Hand-over: files with which a scheduler runs a pipeline, for this pipeline.yml. No value of a variable is in them.

They are a line for cron, a DAG of Airflow, and for each service in `submit` the request that starts its job. Nothing is
scheduled or sent here.
"""

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from string import Template

from pydantic import TypeAdapter, ValidationError

from lakeingest.commands.report import Report
from lakeingest.commands.submit import SERVICES, request_of
from lakeingest.config import Config
from lakeingest.config.duration import Duration
from lakeingest.config.load import read_document
from lakeingest.config.variables import names_of_variables
from lakeingest.core.printable import printable
from lakeingest.errors import LakeIngestError, UsageError

TOKEN = "one-for-each-job"  # noqa: S105 - stands for the token that `submit` makes anew for each job
_HOUR_MINUTES, _DAY_HOURS = 60, 24
_DAG = Template('''"""Runs the pipeline $name every $every (Airflow 3). lakeingest is installed where the task runs.

The task has the exit code of the command: 75 asks for a retry, and 99 fails the task without one.
$variables
"""

from datetime import datetime, timedelta
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

COMMAND = $command + """
code=$$?
case $$code in
  0|75) exit $$code ;;
  *) echo "lakeingest ended with $$code: a person has to act"; exit 99 ;;
esac
"""


class Lakeingest(BashOperator):
    """A task that fails at once with exit code 99, where BashOperator would call it skipped."""

    def execute(self, context: Any) -> Any:
        """Run the command. Raises AirflowFailException for 99, and the errors of BashOperator."""
        try:
            return super().execute(context)
        except AirflowSkipException:
            raise AirflowFailException("a person has to act: the log of the task has the error") from None


with DAG(
    dag_id=$dag_id,
    schedule=timedelta(minutes=$minutes),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,  # a second run of the pipeline would end with 75, because the first one has the lease
    tags=["lakeingest"],
) as dag:
    Lakeingest(
        task_id="run",
        bash_command=COMMAND,
        retries=3,
        retry_delay=timedelta(minutes=2),
        execution_timeout=timedelta(hours=6),
    )
''')


@dataclass(frozen=True, slots=True)
class HandedFile:
    """A file for a scheduler. `path` is None if the file was not written, and `why` says why not."""

    purpose: str
    path: Path | None
    why: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class HandOver(Report):
    """The files for schedulers, and the variables of the environment that a run needs there."""

    files: tuple[HandedFile, ...]
    variables: tuple[str, ...]

    headers = ("for", "file", "why not")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each file."""
        for file in self.files:
            yield file.purpose, file.path, file.why

    @property
    def notes(self) -> Sequence[str]:
        """The variables, without their values."""
        return (_about_variables(self.variables),)


def hand_over(config: Config, path: Path, folder: Path, every: str = "10m") -> HandOver:
    """Write files into `folder` with which schedulers run the pipeline.yml at `path`.

    `every` is the time between two runs. A file that exists with the same contents stays. For a service in `submit`
    whose request cannot be made, the result says why.

    Raises UsageError if `every` is no length of time that cron can have, if a file exists with other contents, or if a
    file cannot be written.
    """
    minutes = _minutes(every)
    path, variables = path.resolve(), tuple(names_of_variables(read_document(path)))
    services = [key for key in SERVICES if getattr(config.submit, key.replace("-", "_")) is not None]
    texts = {
        "crontab": ("cron", _cron(path, minutes, variables)),
        f"{config.name}_dag.py": ("Airflow", _dag(config, path, minutes, every, variables, services)),
    }
    refused = []
    for key in services:
        try:
            request = request_of(path, key, TOKEN)
        except LakeIngestError as error:  # the other files are of use all the same
            refused.append(HandedFile(key, None, error.line))
        else:
            texts[f"{key}.json"] = key, f"{json.dumps(request, indent=2)}\n"
    files = [HandedFile(purpose, _written(folder / name, text)) for name, (purpose, text) in texts.items()]
    if not services:
        refused.append(HandedFile("EMR, Dataproc", None, "pipeline.yml names no service in `submit`"))
    return HandOver((*files, *refused), variables)


def _minutes(every: str) -> int:
    """The minutes between two runs. Raises UsageError unless cron can run something at this interval."""
    try:
        seconds = int(TypeAdapter(Duration).validate_python(every) / timedelta(seconds=1))
    except ValidationError:
        seconds = 0
    minutes, rest = divmod(seconds, 60)
    is_part_of_hour = 0 < minutes < _HOUR_MINUTES and _HOUR_MINUTES % minutes == 0
    hours, odd_minutes = divmod(minutes, _HOUR_MINUTES)
    is_part_of_day = 0 < hours <= _DAY_HOURS and not odd_minutes and _DAY_HOURS % hours == 0
    if rest or not (is_part_of_hour or is_part_of_day):
        raise UsageError(
            f"every {every}: wanted minutes that divide an hour, such as 10m, or hours that divide a day, such as 6h"
        )
    return minutes


def _cron(path: Path, minutes: int, variables: Sequence[str]) -> str:
    """The line of a crontab, with comments. In a crontab a percent sign ends the command, unless it is escaped."""
    if "\n" in str(path):
        raise UsageError(f"cron cannot run {printable(str(path))}: its name has several lines")
    hours = minutes // _HOUR_MINUTES
    if minutes < _HOUR_MINUTES:
        times = f"*/{minutes} * * * *"
    else:
        times = "0 0 * * *" if hours == _DAY_HOURS else f"0 */{hours} * * *"
    log = shlex.quote(str(path.parent / "cron.log"))
    command = f"{shlex.quote(sys.executable)} -m lakeingest run -c {shlex.quote(str(path))} >> {log} 2>&1"
    escaped = command.replace("%", r"\%")
    return (
        f"# {_about_variables(variables)}\n"
        "# Exit code 75 needs nothing: the next run tries again. At 1, 2, 3 and 70 a person has to act.\n"
        f"{times} {escaped}\n"
    )


def _dag(
    config: Config, path: Path, minutes: int, every: str, variables: Sequence[str], services: Sequence[str]
) -> str:
    """A DAG that submits the pipeline to its service; without a service, or with several, the task runs it itself."""
    subcommand = f"submit {services[0]} --wait" if len(services) == 1 else "run"
    return _DAG.substitute(
        name=config.name,
        every=every,
        variables=_about_variables(variables),
        command=repr(f"lakeingest {subcommand} -c {_unrendered(shlex.quote(str(path)))}"),
        dag_id=repr(f"lakeingest_{config.name}"),
        minutes=minutes,
    )


def _unrendered(text: str) -> str:
    """The text, marked so that Airflow leaves it as it is: its templates take braces in a path for an expression."""
    return f"{{% raw %}}{text}{{% endraw %}}" if "{" in text else text


def _about_variables(variables: Sequence[str]) -> str:
    """What a person has to know of the variables that a run needs."""
    if not variables:
        return "pipeline.yml needs no variable of the environment"
    return f"the scheduler has to set {', '.join(variables)}, which pipeline.yml names; no value is in these files"


def _written(path: Path, text: str) -> Path:
    """Write a new file, in a new folder if need be. Raises UsageError for a file with other contents."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        if path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text:
            return path
        raise UsageError(f"{path} exists already with other contents and is not overwritten; move it away") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    return path
