"""The image of infra/container: no registry with its base can be reached here, so its commands run in a folder."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "infra" / "container" / "Containerfile").read_text()
PLACE = "/opt/lakeingest"


def commands(text: str) -> list[str]:
    """The commands of each RUN, in the order of the file."""
    return [command.replace("\\\n", " ") for command in re.findall(r"(?ms)^RUN (.*?[^\\])$", text)]


@pytest.mark.long("installs a package anew")
def test_the_first_stage_needs_only_what_it_copies(tmp_path: Path) -> None:
    """Its commands build lakeingest of the copied files, with the locked setuptools and nothing else.

    Two parts are left out, because they take minutes: the other packages, which `make package` installs by their
    hashes, and the code that is compiled. The packages of this environment stand for them when the program runs.
    """
    source, built = tmp_path / "src", tmp_path / "lakeingest"
    source.mkdir()
    for line in re.findall(r"(?m)^COPY (?!--from)(.+) \S+$", TEXT):
        for name in line.split():
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, source / name)
    lock = (source / "requirements.lock").read_text()
    [setuptools] = [one for one in re.split(r"(?m)^(?=\w)", lock) if one.startswith("setuptools==")]
    (source / "requirements.lock").write_text(setuptools)
    first, *_ = commands(TEXT)
    kept = [part for part in first.split("&&") if "kernels" not in part]
    assert len(kept) == len(first.split("&&")) - 1
    script = " && ".join(kept).replace("python -m venv", f"{sys.executable} -m venv").replace(PLACE, str(built))
    bare = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PIP_CONSTRAINT"}}
    done = subprocess.run(
        ["sh", "-c", script], cwd=source, env=bare, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(source)  # the second stage has only what was built
    [program] = re.findall(r'ENTRYPOINT \["(\w+)"\]', TEXT)
    [path] = re.findall(r"(?m)^ENV PATH=(\S+?):\$PATH", TEXT)
    [packages] = [one for one in sys.path if (Path(one) / "pyarrow").is_dir()]
    said = subprocess.run(
        [f"{path.replace(PLACE, str(built))}/{program}", "explain", "BinlogGone"],
        cwd=tmp_path,
        env=bare | {"PYTHONPATH": packages},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert "BinlogGone" in said.stdout
