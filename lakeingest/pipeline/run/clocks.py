"""The clock of this machine, compared with the clock of the source. Nobody knows which of the clocks is right.

So data that is removed only because of its age stays until both clocks say that it is old.
"""

import time
from collections.abc import Mapping
from datetime import timedelta

from lakeingest.config import FORMATS, Config
from lakeingest.core.figures import clocks
from lakeingest.core.tables.schema import TableId
from lakeingest.lake.target import Staged
from lakeingest.mysql.source import Source


def lead(source: Source) -> timedelta:
    """By how much this machine's clock is ahead of the source's; zero if it is ahead by a minute at most, or behind."""
    return clocks.lead(time.time(), source.clock())


def disagreement(source: Source, copies: Mapping[TableId, Staged | None]) -> str | None:
    """A finding if this machine's clock disagrees with the source's or with the last changes of copies; else None."""
    changed = {table: staged.changed for table, staged in copies.items() if staged is not None}
    return clocks.disagreement(time.time(), source.clock(), changed)


def with_longer_keeps(config: Config, source: Source) -> Config:
    """The config that keeps snapshots and changelog longer, by the lead of this machine's clock over the source's."""
    ahead = lead(source)
    if not ahead:
        return config
    target, changelog = config.target, config.changelog
    # snapshots are kept by their age if the format always does so, or if the user has set the key
    if FORMATS[target.format].keeps_by_age or "keep" in target.history.model_fields_set:
        longer = target.history.model_copy(update={"keep": target.history.keep + ahead})
        target = target.model_copy(update={"history": longer})
    if changelog.keep:  # else the user wants no changelog
        changelog = changelog.model_copy(update={"keep": changelog.keep + ahead})
    return config.model_copy(update={"target": target, "changelog": changelog})
