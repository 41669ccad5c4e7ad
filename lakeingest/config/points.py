"""`points` of pipeline.yml: how often runs keep a version of each copy as of one place in the binlog, and how long."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from lakeingest.config.duration import Duration
from lakeingest.config.frozen import Frozen


class Points(Frozen):
    """`every`: the time between two points that runs make by themselves; None: they make none.

    `keep`: the age at which runs drop these points; the newest one stays.
    """

    every: Annotated[Duration, Field(ge=timedelta(minutes=1))] | None = None
    keep: Duration = timedelta(days=7)
