"""A sample source for notebooks: a local server with the shop, which the notebooks may change."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lakeingest.config import Source
from lakeingest.config.source import Tls
from lakeingest.demo.server import LocalServer, local_server
from lakeingest.demo.shop import DATABASE, Sizes, build
from lakeingest.demo.workload import Workload

ROWS = 60_000
TABLE = f"{DATABASE}.orders"
_CHANGES_MAX = 10_000_000  # more than writers make while a cell works


@dataclass(frozen=True, slots=True)
class SampleSource:
    """A running server with a shop of these sizes."""

    server: LocalServer
    size: Sizes

    @property
    def source(self) -> Source:
        """The server as the source of a pipeline."""
        server = self.server
        # without TLS, because a handshake takes longer than a small chunk
        return Source.model_validate(
            {
                "host": server.host,
                "port": server.port,
                "user": server.user,
                "password": server.password,
                "tls": Tls(mode="disabled"),
            }
        )

    @property
    def url(self) -> str:
        """The URL of the shop, without the password."""
        return f"mysql://{self.server.user}@{self.server.host}:{self.server.port}/{DATABASE}"

    def sql(self, *statements: str) -> None:
        """Execute statements in the shop, each in a transaction of its own."""
        with self.server.connect(DATABASE) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    @contextmanager
    def writing(self) -> Iterator[Workload]:
        """Within the block, writers change the shop: they insert, update, delete, move keys and roll back."""
        with Workload(self.server, self.size, _CHANGES_MAX, seed=int(time.time())) as workload:
            workload.allow(1)
            yield workload

    def write(self, changes: int) -> None:
        """Let writers make about so many changes of rows. Raises LakeIngestError if a writer failed."""
        with Workload(self.server, self.size, changes, seed=int(time.time())) as workload:
            workload.finish()


@contextmanager
def sample_source(folder: Path, rows: int = ROWS) -> Iterator[SampleSource]:
    """Within the block, a server whose data are below `folder`, with a shop of so many rows.

    Raises OperatorNeeded if no server can be started.
    """
    with local_server(folder) as server:
        with server.connect() as connection:
            size = build(connection, rows, seed=1)
        yield SampleSource(server, size)
