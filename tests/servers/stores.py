"""Places of a pipeline's state for tests: a folder of this machine, a real S3 server, and a store in memory."""

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pytest

from lakeingest.config import Target
from lakeingest.config.place import Place
from lakeingest.config.storage import Storage
from lakeingest.demo.s3 import LocalS3
from lakeingest.files import kept
from lakeingest.files.bucket import Bucket
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.files.stored import Stored
from tests.servers.google import BUCKET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GCS = pytest.param("gcs", marks=pytest.mark.long("builds a server of Google's protocol"))
SHARED = ("folder", "s3", GCS)
KINDS = (*SHARED, "memory")
_LATE_SECONDS = 10.0


def storage_of(server: LocalS3, endpoint: str | None = None) -> Storage:
    """`target.storage` with the credentials of a server, maybe at the address of a proxy."""
    keys = {"s3.access-key-id": server.access_key, "s3.secret-access-key": server.secret_key}
    return Storage.model_validate({**server.storage, "endpoint": endpoint or server.endpoint, "properties": keys})


def stored_in(server: LocalS3, endpoint: str | None = None) -> Stored:
    """A new folder of the server's bucket."""
    return Stored.of(Place.of(f"s3://{server.bucket}/{uuid.uuid4().hex}"), storage_of(server, endpoint))


def gcs_storage(url: str) -> Storage:
    """`target.storage` for a store with Google's protocol."""
    return Storage.model_validate({"endpoint": url, "properties": {"gcs.oauth2.token": "any"}})


def stored_in_gcs(url: str) -> Stored:
    """A new folder of the bucket of a store with Google's protocol."""
    return Stored.of(Place.of(f"gs://{BUCKET}/{uuid.uuid4().hex}"), gcs_storage(url))


def in_memory() -> Stored:
    """A new folder of a store in this process."""
    return Stored(Bucket("memory://tests"), uuid.uuid4().hex)


def new_folder(request: pytest.FixtureRequest) -> File:
    """A new folder of the kind that a fixture asks for."""
    if request.param == "memory":
        return in_memory()
    if request.param == "s3":
        return stored_in(request.getfixturevalue("s3"))
    if request.param == "gcs":
        return stored_in_gcs(request.getfixturevalue("gcs"))
    folder: Local = request.getfixturevalue("tmp_path") / "folder"
    folder.mkdir()
    return folder


def hadoop_reaches(spark: "SparkSession", target: Target) -> None:
    """Let the running session read and write the target's store, for tables that no FileIO opens."""
    settings: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    for key, value in target.storage.hadoop().items():
        settings.set(key, value)


def forget_kept() -> None:
    """Let this process know no more of data files than another one."""
    kept._kept.clear()  # noqa: SLF001


def on_disk(file: File) -> Local:
    """A file that is one of this machine."""
    assert isinstance(file, Local)
    return file


def everything(folder: File) -> list[File]:
    """All files of a folder, also of those in it."""
    if isinstance(folder, Path):
        return sorted(file for file in folder.rglob("*") if file.is_file())
    return [file.parent / file.name for file in folder.tree()]  # a listing has told each of its state


def remove(folder: File) -> None:
    """Remove a folder and all that is in it, also while a cancelled task of Spark still writes its last file there."""
    if isinstance(folder, Path):
        assert folder.is_dir()
        deadline = time.monotonic() + _LATE_SECONDS
        while folder.exists():
            shutil.rmtree(folder, ignore_errors=time.monotonic() < deadline)
    else:
        for file in everything(folder):
            file.delete()


@contextmanager
def killed_at(step: int) -> Iterator[list[int]]:
    """The process dies at this change of a name, on disk or in a store; yields how many are left until then."""
    left = [step]

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def changed(*given: object, **options: object) -> object:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            return real(*given, **options)

        return changed

    places = (Path, "replace"), (Path, "unlink"), (os, "link"), *((obstore, name) for name in ("put", "copy", "delete"))
    with pytest.MonkeyPatch.context() as patched, suppress(KeyboardInterrupt):
        for owner, name in places:
            patched.setattr(owner, name, counted(getattr(owner, name)))
        yield left
