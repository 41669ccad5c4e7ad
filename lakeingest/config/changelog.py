"""The changelog that readers get: `changelog` of pipeline.yml."""

from datetime import timedelta

from lakeingest.config.duration import Duration
from lakeingest.config.frozen import Frozen


class Changelog(Frozen):
    """`keep`: how long changes stay readable after they are published. `table`: also write the changes to the lake."""

    keep: Duration = timedelta(days=7)
    table: bool = False
