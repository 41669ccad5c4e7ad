"""What the tests of jobs share: an installation to take versions from, and the one archive that takes a minute."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakeingest.cluster import archive

ROOT = Path(__file__).parents[2]
PIPELINE = """
name: shop
source: {host: "${DB_HOST:-db.example.com}", user: lake, password: "${MYSQL_PASSWORD}"}
tables: {include: ["shop.*"]}
target: {catalog: {type: glue}, warehouse: s3://company/lake}
state: s3://company/state
submit:
  emr-serverless:
    application_id: 00f1abcdefgh0001
    execution_role_arn: arn:aws:iam::123456789012:role/lakeingest
    region: eu-central-1
    bucket: s3://company/jobs/
    secrets: {MYSQL_PASSWORD: lake/mysql}
"""


@pytest.fixture(scope="session", autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The package's metadata as pip writes them, also where the tests run beside an installation."""
    source = tmp_path_factory.mktemp("package")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    (source / "lakeingest").mkdir()
    built = tmp_path_factory.mktemp("metadata")
    code = "import setuptools.build_meta as b, sys; b.prepare_metadata_for_build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, built], cwd=source, capture_output=True, check=True)
    sys.path.insert(0, str(built))
    yield
    sys.path.remove(str(built))


@pytest.fixture(scope="session")
def built(_installed: None, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the archives of the dependencies, fetched from the package registry or by an earlier session."""
    kept = pytestconfig.cache.mkdir("dependencies") if pytestconfig.cache else tmp_path_factory.mktemp("kept")
    folder = tmp_path_factory.mktemp("built")
    for path in archive.dependencies(kept, archive.requirements()):
        shutil.copy(path, folder)
    return folder


@pytest.fixture
def pipeline(tmp_path: Path, built: Path) -> Callable[..., Path]:
    """Call it with another text: a pipeline.yml, beside which the dependencies are built already."""
    (tmp_path / "build" / "submit").mkdir(parents=True)
    for path in built.iterdir():
        os.link(path, tmp_path / "build" / "submit" / path.name)

    def write(text: str = PIPELINE) -> Path:
        path = tmp_path / "pipeline.yml"
        path.write_text(text)
        return path

    return write
