"""`doctor`: one page for a report, without secrets."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lakeingest.cli import app
from lakeingest.commands.doctor import Diagnosis, Finding, doctor
from lakeingest.errors import CheckFailed
from lakeingest.version import VERSION
from tests.mysql.database import Db

pytestmark = pytest.mark.mysql


def found(result: Diagnosis) -> dict[str, str]:
    """What was found, by part and thing."""
    return {f"{one.part}: {one.what}": one.found for one in result.findings}


def problems(result: Diagnosis) -> list[str]:
    """The things with a problem."""
    return [one.what for one in result.findings if one.is_problem]


def test_a_page_has_versions_machine_network_and_conditions_and_no_secret(db: Db, file_of: Callable[..., Path]) -> None:
    """As Markdown and as JSON; nothing is left behind."""
    catalog = {"type": "rest", "uri": "https://127.0.0.1:1/", "properties": {"token": "s3cret-token"}}
    file = file_of(db, target={"catalog": catalog, "warehouse": "warehouse"})
    password = db.source.password.get_secret_value()
    result = doctor(file)
    of = found(result)
    assert of["installation: lakeingest"] == VERSION
    assert of["installation: pyarrow"].count(".") >= 2
    assert "GB available" in of["machine: memory"]
    assert of["network: answer of the source"].endswith(" ms")
    assert of["check: binlog_format"] == "ok"
    assert of["pipeline: catalog"] == "rest https://127.0.0.1:1/"
    text = result.markdown + json.dumps(result.to_json())
    assert password not in text.replace(db.name, "")
    assert "s3cret" not in text
    assert sorted(path.name for path in file.parent.iterdir()) == ["pipeline.yml"]


def test_what_is_broken_is_on_the_page(
    db: Db, file_of: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong file, a source that is away; the rest is there, too, and the exit code is that of a failed check."""
    file = file_of(db)
    away = doctor(file, ["source.port=1"])
    assert "source" in problems(away)
    assert "machine: memory" in found(away)
    file.write_text("name: [")
    assert problems(doctor(file)) == [str(file)]
    with pytest.raises(CheckFailed, match="not ready: "):
        app(["doctor", "-c", str(file)], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["| part | what | found |", "| --- | --- | --- |"]
    assert any(line.startswith("| pipeline | ") and "PROBLEM: " in line for line in lines)


def test_a_terminal_gets_no_markdown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each part has its findings below its name, problems are marked, and the last line says how to get the page."""
    findings = Finding("machine", "memory", "1 GB"), Finding("check", "a|b", "no", is_problem=True)
    monkeypatch.setattr("lakeingest.commands.doctor.doctor", lambda *_: Diagnosis(findings))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(CheckFailed, match=r"not ready: a\|b"):
        app(["doctor"], standalone_mode=False)
    assert capsys.readouterr().out.splitlines() == [
        "machine",
        "          memory 1 GB",
        "check",
        "  PROBLEM a|b    no",
        "for a report: lakeingest doctor > doctor.md",
    ]


def test_names_are_data_in_the_page() -> None:
    """Signs of Markdown and of terminals are shown, not obeyed."""
    page = Diagnosis((Finding("check", "a|b `c` <script>", "\x1b[31mred"),)).markdown.splitlines()[2]
    assert page.count(" | ") == 2
    assert r"a\|b \`c\` \<script\>" in page
    assert "\x1b" not in page
