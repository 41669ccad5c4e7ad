"""`spark` of pipeline.yml: the jars and settings of Spark."""

import re
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field

from lakeingest.config.frozen import Frozen

MASTER = "spark.master"
# Settings that name a program, a class, a jar or options of the JVM. Whoever writes such a setting lets code run with
# the rights of the user who starts the run.
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
    """Spark's jars, and settings of Spark that override the settings of lakeingest.

    `jars` is `auto` (fetch them), `provided` (the cluster has them), or the jars themselves.
    """

    jars: Literal["auto", "provided"] | tuple[str, ...] = "auto"
    conf: dict[str, str] = Field(default={})

    @property
    def master(self) -> str | None:
        """The Spark master that pipeline.yml names; None if it names none."""
        return self.conf.get(MASTER)

    @property
    def local_slots(self) -> int | None:
        """The number of parallel tasks that a master such as `local[4]` names; None if it names none.

        `local` alone stands for one task. Without a master, no number is named.
        """
        match = re.fullmatch(r"local(?:\[(\d+)(?:,\s*\d+)?\])?", self.master or "")
        return None if match is None else int(match[1] or 1)

    @property
    def loads_code(self) -> tuple[str, ...]:
        """The keys of pipeline.yml whose values start programs or load code."""
        jars = ("spark.jars",) if isinstance(self.jars, tuple) else ()
        settings = [key for key in self.conf if any(fnmatchcase(key, pattern) for pattern in _CODE)]
        return *jars, *(f"spark.conf.{key}" for key in settings)


def is_on_this_machine(master: str) -> bool:
    """Whether a Spark with this master runs all tasks on this machine, as the user of the driver."""
    return master.startswith("local")
