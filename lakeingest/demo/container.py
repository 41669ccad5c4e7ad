"""A server's official image on a Docker daemon of this machine, by the docker command line."""

import os
import shutil
import subprocess
from collections.abc import Callable

from lakeingest.demo.flavor import Flavor
from lakeingest.errors import OperatorNeeded

_ANSWER_SECONDS = 5
_FETCH_SECONDS = 900


def answering_docker() -> str:
    """The docker program, if a daemon on this machine answers it; OperatorNeeded says why not."""
    docker = shutil.which("docker")
    if docker is None:
        raise OperatorNeeded("docker is not on PATH")
    daemon = os.environ.get("DOCKER_HOST", "")
    if daemon.startswith(("tcp:", "ssh:")):
        raise OperatorNeeded("DOCKER_HOST is another machine, whose loopback is not ours")
    _docker([docker, "version", "--format", "{{.Server.Version}}"], _ANSWER_SECONDS)
    return docker


def fetch_image(docker: str, image: str, say: Callable[[str], None]) -> None:
    """Fetch the image unless this machine has it."""
    try:
        _docker([docker, "image", "inspect", "--format", "{{.Id}}", image], _ANSWER_SECONDS)
    except OperatorNeeded:
        say(f"fetching the container image {image} (once)")
        _docker([docker, "pull", "--quiet", image], _FETCH_SECONDS)


def run_command(docker: str, flavor: Flavor, name: str, address: str, options: list[str]) -> list[str]:
    """The command that runs a server at `address` and leaves nothing behind when it ends.

    `--init`: a signal also ends the image's set-up script, which would ignore it as process 1.
    """
    place = ["--name", name, "--publish", f"{address}:3306", "--env", flavor.password_variable]
    return [docker, "run", "--rm", "--init", "--pull", "never", *place, flavor.image, *options]


def remove(docker: str, name: str) -> None:
    """Remove a container and its data; it may be gone already."""
    subprocess.run(
        [docker, "rm", "--force", "--volumes", name],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )


def _docker(command: list[str], seconds: int) -> None:
    """Run a docker command; OperatorNeeded with its last line if it fails or takes longer."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OperatorNeeded(f"docker {command[1]} gave no answer in {seconds} s") from error
    except OSError as error:
        raise OperatorNeeded(f"docker does not run: {error.strerror}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise OperatorNeeded(f"docker {command[1]} failed: {last}")
