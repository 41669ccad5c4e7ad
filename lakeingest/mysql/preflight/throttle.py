"""Preflight of `throttle`: whether the load that it limits can be measured."""

import pymysql

from lakeingest.config import Source, Throttle
from lakeingest.core.tables.condition import Checked
from lakeingest.errors import LakeIngestError
from lakeingest.mysql.connection import named_errors
from lakeingest.mysql.load import LoadMeter


def throttle_conditions(source: Source, throttle: Throttle, primary: pymysql.Connection) -> tuple[Checked, ...]:
    """The condition that the load can be measured; () if pipeline.yml has no limits. `primary` leads to the source.

    The condition is not fatal: a run stops the tables of which it has to read chunks, and goes on with the others.
    """
    if throttle == Throttle():
        return ()
    try:
        with named_errors(source):
            LoadMeter(source, throttle.load).measure(primary)
    except LakeIngestError as error:
        return (Checked("throttle", str(error), fatal=False),)
    return (Checked("throttle", None),)
