"""Spark: `spark` of pipeline.yml, and whether its tasks run on this machine."""

from typing import Literal

from pydantic import Field

from lakeingest.config.frozen import Frozen

MASTER = "spark.master"


class Spark(Frozen):
    """Spark: its jars, and settings that override those of lakeingest."""

    jars: Literal["auto", "provided"] | tuple[str, ...] = "auto"
    conf: dict[str, str] = Field(default={})

    @property
    def master(self) -> str | None:
        """The cluster that pipeline.yml names; None where it names none."""
        return self.conf.get(MASTER)


def is_on_this_machine(master: str) -> bool:
    """Whether all tasks of a master run on this machine, by processes of the same user."""
    return master.startswith("local")
