"""Feed: the changelog of a table as lines of text, for another system."""

from collections.abc import Callable, Iterator
from typing import BinaryIO

from lakeingest.commands.changelog import changelog_of, since_of
from lakeingest.commands.changelog_json import ChangelogJson
from lakeingest.commands.cloud_events import CloudEvents
from lakeingest.commands.debezium_json import DebeziumJson
from lakeingest.config import Config
from lakeingest.pipeline.changelog.reading import Changelog, Part

DEBEZIUM, CLOUD_EVENTS = "debezium-json", "cloudevents"


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
    lines = _lines_of(config, changelog, form, version)
    for part in changelog.read(since_of(since), follow=follow, stopping=stopping):
        out.write("".join(f"{line}\n" for line in lines(part)).encode())
        out.flush()
        if stopping():
            break


def _lines_of(config: Config, changelog: Changelog, form: str, version: str) -> Callable[[Part], Iterator[str]]:
    """The function that writes the lines of a part in the format `form`."""
    if form == DEBEZIUM:
        return DebeziumJson(changelog.name, config.name, changelog.end, version).lines
    if form == CLOUD_EVENTS:
        return CloudEvents(changelog.name, config.name, changelog.table).lines
    return ChangelogJson(changelog.name).lines
