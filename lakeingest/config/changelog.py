"""The changelog that readers get: `changelog` of pipeline.yml."""

from datetime import timedelta

from lakeingest.config.duration import Duration
from lakeingest.config.frozen import Frozen


class Changelog(Frozen):
    """How long changes are kept for readers once they are published, and whether they have a table in the lake."""

    keep: Duration = timedelta(days=7)
    table: bool = False
