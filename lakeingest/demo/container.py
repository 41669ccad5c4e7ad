"""A server in its official container image, run by the Docker daemon of this machine through testcontainers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from lakeingest.demo.flavor import Flavor
from lakeingest.errors import OperatorNeeded

_REMOTE = "tcp:", "ssh:", "http"  # how the address of a Docker daemon on another machine begins
_RUNNING_STATES = {"created", "running"}

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

Ended = Callable[[], str | None]  # returns None while a server runs, then its log


@contextmanager
def run_container(
    flavor: Flavor, address: tuple[str, int], password: str, options: list[str], say: Callable[[str], None]
) -> Iterator[Ended]:
    """Run a server that listens at `address`. Yields a function that returns None while the server runs, then its log.

    At the end of the block the container and its data are removed. If this process is killed, the reaper container of
    testcontainers removes them. Raises OperatorNeeded if no container can be started.
    """
    try:
        from docker.errors import DockerException
        from testcontainers.core.container import DockerContainer
        from testcontainers.core.docker_client import get_docker_host
    except ImportError as error:
        raise OperatorNeeded("testcontainers is not installed: pip install 'lakeingest[demo]'") from error
    if (get_docker_host() or "").startswith(_REMOTE):
        raise OperatorNeeded("DOCKER_HOST is another machine, whose loopback is not ours")
    with ExitStack() as cleanup:
        try:
            # init=True: without it the image's set-up script would be process 1, and would ignore the signal to end
            container = DockerContainer(flavor.image, init=True).with_command(options)
            container.with_env(flavor.password_variable, password)
            # set directly, because the method of testcontainers would bind the port on every address
            ports: Any = {"3306/tcp": address}
            container.ports = ports
            if not container.get_docker_client().client.images.list(name=flavor.image):
                say(f"fetching the container image {flavor.image} (once)")
            cleanup.callback(_remove, container)  # before the start, which may fail and leave a container
            container.start()
        except (DockerException, OSError, RuntimeError) as error:
            raise OperatorNeeded(f"Docker does not run the image: {' '.join(str(error).split())[:300]}") from error
        server = container.get_wrapped_container()

        def ended() -> str | None:
            server.reload()  # asks Docker for its status
            return None if server.status in _RUNNING_STATES else server.logs().decode(errors="replace")

        yield ended


def _remove(container: "DockerContainer") -> None:
    """Remove a container and its data. It is no error if the container is removed already."""
    with suppress(Exception):
        container.stop()
