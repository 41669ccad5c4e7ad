"""Kernels are compiled once: for every process that can keep them anywhere, and none of them is ever stale."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from lakeingest.mysql.wire.compiled import SLACK, kernel, number
from lakeingest.mysql.wire.kernels import compile_kernels

PACKAGE = Path(__file__).parents[3] / "lakeingest"
NOWHERE = "/dev/null/nowhere"  # what lies below a file cannot be written, not even by root

# Root may write what is read-only, unless it gives that up.
AS_ANYONE = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()

# Runs a kernel; prints how many functions were compiled, and where kernels are kept.
RUN = """
import pyarrow as pa
from numba.core import event
with event.install_recorder("numba:compile") as compiled:
    import lakeingest
    from lakeingest.mysql.wire import cache, numbers
    from lakeingest.mysql.wire.values import Values
    assert numbers.integers(Values.of([b"\\x05\\0\\0"]), 3, pa.int64(), signed=True).to_pylist() == [5]
print(lakeingest.__file__, sum(one.is_start for _, one in compiled.buffer), cache.folder())
"""

# Prints how many kernels there are, then those that are not kept, or that decoding compiled for other types.
DECODE = """
import sys
from lakeingest.mysql.wire import cache
from lakeingest.mysql.wire.compiled import _Compiled
from lakeingest.mysql.wire.kernels import compile_kernels
from tests.mysql.wire import test_result_set, test_segment

modules = [module for name, module in sys.modules.items() if name.startswith("lakeingest.mysql.wire.")]
functions = {one for module in modules for one in vars(module).values() if isinstance(one, _Compiled)}
kernels = [one for one in functions if one.stats.cache_path]
compile_kernels()
before = [one.signatures for one in kernels]
for rows in test_result_set.RECORDED:
    test_result_set.read(rows)
test_segment.read(test_segment.DUMP)
kept = {path.name.partition("-")[0].partition(".")[2] for path in cache.compiled_files()}
late = [one for one, known in zip(kernels, before) if one.signatures != known]
print(len(kernels), *(one.__name__ for one in kernels if one in late or one.__name__ not in kept))
"""


class Package:
    """lakeingest in a zip, as `--py-files` ships it, and processes that import it from there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with zipfile.ZipFile(path, "w") as packed:
            for source in PACKAGE.rglob("*"):
                if source.is_file() and "__pycache__" not in source.parts:
                    packed.write(source, source.relative_to(PACKAGE.parent))

    def run(self, *before: str, **variables: Path | str) -> tuple[int, Path | None, str]:
        """Run a kernel: how many functions were compiled, where they are kept, and what was logged."""
        nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "TMPDIR"), NOWHERE)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
        done = subprocess.run(
            [*before, sys.executable, "-c", RUN],
            cwd=self.path.parent,
            env=kept
            | nowhere
            | {"PYTHONPATH": str(self.path)}
            | {name: str(value) for name, value in variables.items()},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-1000:]
        module, compiled, folder = done.stdout.split()
        assert module.startswith(str(self.path))
        return int(compiled), None if folder == "None" else Path(folder), done.stderr


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """The package as it is."""
    return Package(tmp_path_factory.mktemp("zip") / "lakeingest.zip")


def test_number_reads_as_many_bytes_as_requested() -> None:
    """One to seven bytes are unsigned, eight are signed, at any offset."""

    @kernel
    def read(data: np.ndarray, at: int, size: int) -> int:
        return number(data, at, size)

    data = np.frombuffer(bytes(range(7, 255, 13)) + bytes(SLACK), np.uint8)
    for size in range(1, 9):
        for at in range(12):
            expected = int.from_bytes(data[at : at + size].tobytes(), "little", signed=size == 8)
            assert read(data, at, size) == expected, (at, size)


@pytest.mark.long("takes seconds")
def test_the_next_process_finds_the_compiled_kernels(package: Package, tmp_path: Path) -> None:
    """Also for a package in a zip: in the user's private cache folder."""
    compiled, folder, _ = package.run(XDG_CACHE_HOME=tmp_path)
    assert compiled > 0
    assert folder is not None
    assert folder.parent == tmp_path / "lakeingest"
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert package.run(XDG_CACHE_HOME=tmp_path)[:2] == (0, folder)


def test_a_stored_kernel_is_loaded_without_the_compiler() -> None:
    """Its import would take longer than most runs do all their work."""
    compile_kernels()  # so that all are stored
    code = (
        "import sys; from lakeingest.mysql.wire.kernels import compile_kernels; compile_kernels();"
        " print('numba.typed.typeddict' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.long("takes seconds")
def test_without_a_writable_folder_each_process_compiles(package: Package) -> None:
    """A warning says how to avoid it."""
    compiled, folder, logged = package.run(NUMBA_CACHE_DIR=NOWHERE)
    assert compiled > 0
    assert folder is None
    assert logged.count("no folder for compiled kernels can be written") == 1


@pytest.mark.long("compiles the kernels anew")
def test_other_sources_and_other_processors_have_other_folders(package: Package, tmp_path: Path) -> None:
    """A kernel contains steps of other files, and instructions that other processors may lack."""
    changed, source = Package(tmp_path / "changed.zip"), Path("mysql", "wire", "json_scalar.py")
    with zipfile.ZipFile(changed.path, "a") as packed, pytest.warns(UserWarning, match="Duplicate name"):
        packed.writestr(str("lakeingest" / source), (PACKAGE / source).read_text() + "#")
    folders = {
        package.run(NUMBA_CACHE_DIR=tmp_path)[1],
        changed.run(NUMBA_CACHE_DIR=tmp_path)[1],
        package.run(NUMBA_CACHE_DIR=tmp_path, NUMBA_CPU_NAME="generic")[1],
    }
    assert {folder.parent for folder in folders if folder} == {tmp_path}
    assert len(folders) == 3


@pytest.mark.long("compiles the kernels anew")
def test_a_folder_that_others_can_write_is_not_used(package: Package, tmp_path: Path) -> None:
    """In the folder for temporary files, ours is used only while nobody else can write it."""
    ours = tmp_path / f"lakeingest-{os.getuid()}"
    ours.mkdir(mode=0o700)
    folder = package.run(TMPDIR=tmp_path)[1]
    assert folder is not None
    assert folder.parent == ours
    ours.chmod(0o777)
    assert package.run(TMPDIR=tmp_path)[1] is None
    ours.chmod(0o700)
    ours.rename(tmp_path / "other")
    ours.symlink_to(tmp_path / "other")
    assert package.run(TMPDIR=tmp_path)[1] is None


@pytest.mark.long("compiles the kernels anew")
def test_a_read_only_folder_is_used_only_when_it_is_complete(package: Package, tmp_path: Path) -> None:
    """An incomplete one is skipped. If a complete one lacks a kernel after all, the kernel is compiled."""
    _, folder, _ = package.run(NUMBA_CACHE_DIR=tmp_path)
    assert folder is not None
    folder.chmod(0o555)
    assert package.run(*AS_ANYONE, NUMBA_CACHE_DIR=tmp_path)[1] is None
    folder.chmod(0o755)
    (folder / "complete").touch()
    folder.chmod(0o555)
    assert package.run(*AS_ANYONE, NUMBA_CACHE_DIR=tmp_path)[:2] == (0, folder)
    folder.chmod(0o755)
    [index] = folder.glob("*_read_integers*.nbi")
    index.unlink()
    folder.chmod(0o555)
    compiled, found, logged = package.run(*AS_ANYONE, NUMBA_CACHE_DIR=tmp_path)
    assert (compiled > 0, found, logged) == (True, folder, "")


@pytest.mark.long("takes seconds")
def test_compile_kernels_compiles_all_kernels() -> None:
    """Every kernel, for the types with which it decodes recorded bytes."""
    done = subprocess.run(
        [sys.executable, "-c", DECODE], cwd=PACKAGE.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-1000:]
    count, *wrong = done.stdout.split()
    assert int(count) >= 20
    assert wrong == []
