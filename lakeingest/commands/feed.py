"""Feed: the changelog of a table as lines of text, for another system."""

from collections.abc import Callable
from typing import BinaryIO

from lakeingest.commands.changelog import changelog_of, since_of
from lakeingest.commands.changelog_json import ChangelogJson
from lakeingest.commands.debezium_json import DebeziumJson
from lakeingest.config import Config

DEBEZIUM = "debezium-json"


def feed(
    config: Config,
    table: str,
    form: str,
    out: BinaryIO,
    since: str | None = None,
    *,
    version: str = "",
    follow: bool = False,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Write the changelog of a table to `out`, in the format `form`: each line is a JSON document.

    The function returns at the end of the spool; with `follow`, it waits there for more changes. It returns earlier,
    after the lines of a part, once `stopping` returns True. `version` is the version of lakeingest, which debezium-json
    names as its writer. The lines of each part are flushed, so that a reader gets them at once.
    """
    changelog = changelog_of(config, table)
    lines = (
        DebeziumJson(changelog.name, config.name, changelog.end, version).lines
        if form == DEBEZIUM
        else ChangelogJson(changelog.name).lines
    )
    for part in changelog.read(since_of(since), follow=follow, stopping=stopping):
        out.write("".join(f"{line}\n" for line in lines(part)).encode())
        out.flush()
        if stopping():
            break
