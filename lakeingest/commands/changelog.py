"""The changelog of a table as users ask for it: the table by its name, and the start by a text."""

from datetime import UTC, datetime

from lakeingest.commands.since import parse_since
from lakeingest.config import Config
from lakeingest.errors import UsageError
from lakeingest.lake.formats import open_target
from lakeingest.lake.preflight import copied
from lakeingest.pipeline.changelog.positions import Since
from lakeingest.pipeline.changelog.reading import Changelog


def changelog_of(config: Config, table: str) -> Changelog:
    """The changelog of the table with this name. Raises UsageError if it has no copy."""
    with_copy = config.tables.select(copied(open_target(config), config.target))
    if not with_copy:  # tested here, because `choose` would say that tables.include is wrong
        raise UsageError(f"{table} has no copy yet; run once, then the same command again")
    [chosen] = config.tables.choose(with_copy, [table])
    return Changelog(config, chosen)


def since_of(text: str | None) -> Since | None:
    """The value of `--since`; None without it. Raises UsageError for a text that has none of its forms."""
    return None if text is None else parse_since(text, datetime.now(UTC))
