"""`lakeingest explain`: the runbooks are where lakeingest is, whatever way it was installed."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from lakeingest import terminal
from lakeingest.cluster import archive
from lakeingest.commands.explain import explain, names
from lakeingest.errors import UsageError

ROOT = Path(__file__).parents[2]
PAGES = {path.stem: path.read_text() for path in (ROOT / "lakeingest" / "runbooks").glob("*.md")}


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line of the lakeingest in a folder, started in an empty folder, without any variable."""
    empty = folder.parent / "empty"
    empty.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "lakeingest", *arguments],
        cwd=empty,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_runbook_can_be_read() -> None:
    """The page of an error is the file of its name, and the list has all of them."""
    assert set(names()) == PAGES.keys() - {"README"}
    assert {name: explain(name) for name in names()} == {name: PAGES[name] for name in names()}
    assert all(f"[{name}]({name}.md)" in explain() for name in names())


@pytest.mark.parametrize(("wrong", "near"), [("BinlogGoen", "BinlogGone"), ("spoolgap", "SpoolGap")])
def test_an_unknown_name_is_answered_with_the_nearest_one(wrong: str, near: str) -> None:
    """The message has all names, too, and its exit code is that of a wrong command line."""
    with pytest.raises(UsageError, match=f"{wrong}; did you mean {near}[?] known are .*VerificationFailed") as refused:
        explain(wrong)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("name", ["zzz", "README", "../errors", ""])
def test_only_names_of_errors_are_taken(name: str) -> None:
    """The list of the runbooks is no runbook, and no other file can be read."""
    with pytest.raises(UsageError, match="no runbook has the name"):
        explain(name)


def test_a_page_is_formatted_on_a_terminal_only(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe or a file gets the Markdown itself, a terminal gets headings and code blocks."""
    terminal.print_page(explain("SpoolGap"))
    assert capsys.readouterr().out == PAGES["SpoolGap"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORCE_COLOR", "1")  # Rich takes any output for a terminal then
        terminal.print_page(explain("SpoolGap"))
    drawn = capsys.readouterr().out
    assert "## Meaning" not in drawn
    assert "\x1b[" in drawn


@pytest.mark.long("whole runs")
def test_the_wheel_has_the_runbooks(tmp_path: Path) -> None:
    """Built from the sources as a release is, and used without pipeline.yml, variables and the sources."""
    sources, unpacked = tmp_path / "sources", tmp_path / "unpacked"
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        sources.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, sources)
    shutil.copytree(ROOT / "lakeingest", sources / "lakeingest", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(sources)], check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    shutil.unpack_archive(wheel, unpacked, "zip")
    read = command(unpacked, "explain", "BinlogGone")
    assert (read.returncode, read.stdout, read.stderr) == (0, PAGES["BinlogGone"], "")
    assert command(unpacked, "explain").stdout == PAGES["README"]
    refused = command(unpacked, "explain", "BinlogGoen")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "did you mean BinlogGone?" in refused.stderr


@pytest.mark.long("packs all dependencies of a job")
def test_the_archive_of_a_job_has_the_runbooks(tmp_path: Path) -> None:
    """What `submit` uploads is not a wheel, and has them as well."""
    with tarfile.open(archive.job(tmp_path, b"")) as tar:
        packed = {name for name in tar.getnames() if name.startswith("lakeingest/runbooks/")}
    assert packed == {f"lakeingest/runbooks/{name}.md" for name in PAGES}
