"""The program of a job finds lakeingest in the job's archives, wherever the kind of cluster unpacks them."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pyspark
import pytest

from lakeingest import __version__
from lakeingest.cluster import archive
from lakeingest.spark.session import java_home


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python that sees no package that is installed here."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def archives(tmp_path: Path) -> dict[str, Path]:
    """The archives of a job, by name; the dependencies are links to what is installed here."""
    [site] = [path for path in map(Path, sys.path) if (path / "pyarrow").is_dir()]
    made = {name: tmp_path / f"{name}.tar.gz" for name in ("job", "dependencies")}
    with tarfile.open(made["dependencies"], "w:gz") as tar:
        for package in site.iterdir():
            if not package.name.startswith(("pyspark", "py4j", "lakeingest", "_", "~")):
                link = tarfile.TarInfo(package.name)
                link.type, link.linkname = tarfile.SYMTYPE, str(package)
                tar.addfile(link)
    with tarfile.open(made["job"], "w:gz") as tar:
        tar.add(archive.PACKAGE, "lakeingest", filter=lambda entry: None if "__pycache__" in entry.name else entry)
    return made


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The program as it is shipped: one file, which is in none of the archives."""
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "job-4711.py").write_bytes((archive.PACKAGE / "__main__.py").read_bytes())
    return alone / "job-4711.py"


def said(command: list[object], folder: Path, **variables: str) -> str:
    """What a program prints that ends with 0."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=kept | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_archives_in_the_working_folder_are_found(
    tmp_path: Path, python: Path, archives: dict[str, Path], program: Path
) -> None:
    """As YARN and Kubernetes put them there in cluster mode, and EMR Serverless always."""
    folder = tmp_path / "container"
    for name, path in archives.items():
        with tarfile.open(path) as tar:
            tar.extractall(folder / name, filter="fully_trusted")  # noqa: S202 - with the links that we made
    assert said([python, program, "--version"], folder) == f"lakeingest {__version__}\n"


@pytest.mark.long("starts Spark")
def test_archives_are_found_where_spark_unpacks_them_in_client_mode(
    tmp_path: Path, python: Path, archives: dict[str, Path], program: Path
) -> None:
    """Only a session has them there, in a folder that it makes."""
    home = java_home()
    variables = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    variables |= {} if home is None else {"JAVA_HOME": str(home)}
    submit = Path(pyspark.__path__[0]) / "bin" / "spark-submit"
    named = ",".join(f"{path}#{name}" for name, path in archives.items())
    command = [submit, "--master", "local[1]", "--conf", "spark.ui.enabled=false", "--archives", named, program]
    assert f"lakeingest {__version__}\n" in said([*command, "--version"], tmp_path, **variables)
