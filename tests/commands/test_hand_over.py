"""Files for schedulers: right for this pipeline, without secrets, and never over a file that is there."""

import ast
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from lakeingest.api import Pipeline
from lakeingest.commands.hand_over import TOKEN, HandOver
from lakeingest.config import parse_config
from lakeingest.errors import Retryable, UsageError

SECRET = "pa55word"
EMR = {
    "application_id": "00abc",
    "execution_role_arn": "arn:aws:iam::123456789012:role/lake",
    "region": "eu-central-1",
    "bucket": "s3://company/jobs",
}


def document(**changes: Any) -> dict[str, Any]:
    """A pipeline.yml whose password is in a variable."""
    source = {"host": "db", "user": "lake", "password": "${DB_PASSWORD}"}
    return {"name": "shop", "source": source, "tables": {"include": ["shop.*"]}, **changes}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose name is data: with a space, quotes, a percent sign, and what templates take for theirs."""
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    folder = Path(tmp_path) / 'a b\' "100%" {{ ds }} 📚'
    folder.mkdir()
    return folder


def handed(folder: Path, doc: dict[str, Any], **options: Any) -> HandOver:
    """The hand-over of a pipeline in the folder."""
    path = folder / "pipeline.yml"
    path.write_text(json.dumps(doc))
    return Pipeline.from_yaml(path).hand_over(**options)


def command_of(dag: str) -> str:
    """What the task of a DAG executes."""
    [value] = [
        node.value
        for node in ast.parse(dag).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "COMMAND"
    ]
    return str(eval(compile(ast.Expression(value), "dag", "eval")))  # noqa: S307 - two texts that are added


def test_cron_runs_the_pipeline(folder: Path) -> None:
    """The line names this file, whatever its folder is called; the variable is named, and its value is nowhere."""
    found = handed(folder, document(), every="15m")
    text = (folder / "schedule" / "crontab").read_text()
    [line] = [line for line in text.splitlines() if not line.startswith("#")]
    assert line.startswith("*/15 * * * * ")
    assert line.count("%") == line.count(r"\%") == 2
    words = shlex.split(line.replace(r"\%", "%").removeprefix("*/15 * * * * "))
    assert words[:6] == [sys.executable, "-m", "lakeingest", "run", "-c", str(folder / "pipeline.yml")]
    assert found.variables == ("DB_PASSWORD",)
    assert "DB_PASSWORD" in text
    assert [path for path in (folder / "schedule").iterdir() if SECRET in path.read_text()] == []


@pytest.mark.parametrize(
    ("every", "times", "minutes"),
    [("10m", "*/10 * * * *", 10), ("60m", "0 */1 * * *", 60), ("6h", "0 */6 * * *", 360), ("1d", "0 0 * * *", 1440)],
)
def test_the_interval_is_that_of_cron_and_of_airflow(folder: Path, every: str, times: str, minutes: int) -> None:
    """Both run it equally often."""
    handed(folder, document(), every=every)
    assert f"\n{times} " in (folder / "schedule" / "crontab").read_text()
    assert f"schedule=timedelta(minutes={minutes})," in (folder / "schedule" / "shop_dag.py").read_text()


@pytest.mark.parametrize("every", ["7m", "90m", "5h", "2d", "30s", "0m", "often"])
def test_an_interval_that_cron_does_not_have_is_refused(folder: Path, every: str) -> None:
    """It would run at other times than it says."""
    with pytest.raises(UsageError, match="every"):
        handed(folder, document(), every=every)
    assert not (folder / "schedule").exists()


def test_the_dag_is_that_of_the_template_with_this_pipeline(folder: Path) -> None:
    """It compiles; the task is ours, and what a template would replace stays as it is."""
    handed(folder, document())
    dag = (folder / "schedule" / "shop_dag.py").read_text()
    compile(dag, "shop_dag.py", "exec")
    command = command_of(dag)
    first = command.splitlines()[0].replace("{% raw %}", "").replace("{% endraw %}", "")
    assert shlex.split(first) == ["lakeingest", "run", "-c", str(folder / "pipeline.yml")]
    assert "{% raw %}" in command
    assert f"0|{Retryable.exit_code}) exit $code" in command
    template = Path(__file__).parents[2] / "infra" / "airflow" / "lakeingest_dag.py"
    ours, theirs = (text.partition("with DAG(")[2].partition("tags=")[2] for text in (dag, template.read_text()))
    assert ours == theirs
    # a DAG imports nothing of ours, so each of the two files has the class of the task
    ours, theirs = (
        text.partition("class Lakeingest")[2].partition("with DAG(")[0] for text in (dag, template.read_text())
    )
    assert ours == theirs != ""


def test_a_service_gets_its_request(folder: Path) -> None:
    """The request is that of `submit`; the DAG then submits."""
    doc = document(
        target={"warehouse": "s3://company/lake", "catalog": {"type": "glue"}},
        state="s3://company/state",
        submit={"emr-serverless": EMR | {"secrets": {"DB_PASSWORD": "prod/db"}}},
    )
    found = handed(folder, doc)
    assert [(file.purpose, file.why) for file in found.files] == [("cron", ""), ("Airflow", ""), ("emr-serverless", "")]
    request = json.loads((folder / "schedule" / "emr-serverless.json").read_text())
    assert (request["applicationId"], request["clientToken"]) == ("00abc", TOKEN)
    assert request["jobDriver"]["sparkSubmit"]["entryPointArguments"] == ["run", "-c", "job/pipeline.yml"]
    command = command_of((folder / "schedule" / "shop_dag.py").read_text())
    assert command.startswith("lakeingest submit emr-serverless --wait -c ")
    assert SECRET not in json.dumps(request)


def test_a_request_that_cannot_be_made_says_why(folder: Path) -> None:
    """The other files are there."""
    found = handed(folder, document(submit={"emr-serverless": EMR}))  # its tables are on this machine
    [refused] = [file for file in found.files if file.path is None]
    assert (refused.purpose, "ConfigError" in refused.why or "NotBuiltYet" in refused.why) == ("emr-serverless", True)
    assert sorted(path.name for path in (folder / "schedule").iterdir()) == ["crontab", "shop_dag.py"]
    assert "emr-serverless" in found._repr_html_()


def test_a_file_that_exists_is_never_overwritten(folder: Path) -> None:
    """With the same contents it stays; with others, the user's, the call is refused."""
    handed(folder, document())
    handed(folder, document())
    mine = folder / "schedule" / "crontab"
    mine.write_text("mine\n")
    with pytest.raises(UsageError, match="crontab exists already"):
        handed(folder, document())
    assert mine.read_text() == "mine\n"


def test_a_pipeline_without_a_file_has_no_schedule(tmp_path: Path) -> None:
    """A scheduler needs one."""
    config = parse_config(document(), Path(tmp_path), {"DB_PASSWORD": SECRET})
    with pytest.raises(UsageError, match="from_yaml"):
        Pipeline(config).hand_over()
