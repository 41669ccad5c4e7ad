"""Spark: `spark` of pipeline.yml, and whether its tasks run on this machine."""

import re
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field

from lakeingest.config.frozen import Frozen

MASTER = "spark.master"
# settings that name a program, a class, a jar or options of the JVM: their author's code runs as the user of the run
_CODE = (
    "spark.jars*",
    "spark.files*",
    "spark.archives",
    "spark.submit.pyFiles",
    "spark.plugins*",
    "spark.*JavaOptions",
    "spark.*ClassPath",
    "spark.*LibraryPath",
    "spark.*Listeners",
    "spark.*.discoveryScript",
    "spark.pyspark.*",
    "spark.python.*.module",
    "spark.*Env.*",
    "spark.yarn.dist.*",
    "spark.kubernetes.*",
    "spark.metrics.*",
    "spark.serializer",
    "spark.kryo.*",
    "spark.shuffle.manager",
    "spark.sql.extensions",
    "spark.sql.catalog.*",
    "spark.sql.*.class",
    "spark.hadoop.*",
)


class Spark(Frozen):
    """Spark: its jars, and settings that override those of lakeingest."""

    jars: Literal["auto", "provided"] | tuple[str, ...] = "auto"
    conf: dict[str, str] = Field(default={})

    @property
    def master(self) -> str | None:
        """The Spark master that pipeline.yml names; None if it names none."""
        return self.conf.get(MASTER)

    @property
    def local_slots(self) -> int | None:
        """The number of parallel tasks that a master such as `local[4]` names; None if it names none."""
        slots = re.fullmatch(r"local(?:\[(\d+)(?:,\s*\d+)?\])?", self.master or "local[*]")
        return None if slots is None else int(slots[1] or 1)

    @property
    def loads_code(self) -> tuple[str, ...]:
        """The settings that start programs or load code, by their keys in pipeline.yml."""
        jars = ("spark.jars",) if isinstance(self.jars, tuple) else ()
        return *jars, *(f"spark.conf.{key}" for key in self.conf if any(fnmatchcase(key, name) for name in _CODE))


def is_on_this_machine(master: str) -> bool:
    """Whether all tasks of a master run on this machine, in processes of the same user."""
    return master.startswith("local")
