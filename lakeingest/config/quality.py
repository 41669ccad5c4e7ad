"""`quality` of pipeline.yml: the users' suites, and the consequence of rows that fail them."""

from pathlib import Path
from typing import Literal

from lakeingest.config.frozen import Frozen
from lakeingest.config.place import Place


class Quality(Frozen):
    """The users' suites. `suites` is their folder, None if there is no such folder.

    `on_failure` is the consequence of rows that fail. `sql`: whether suites may hold SQL, which can call any function
    of the JVM and read any file of the machine. `samples`: whether the pages of gates show values of rows that fail, or
    only their keys.
    """

    suites: Place | None = None
    on_failure: Literal["stop", "quarantine"] = "stop"
    sql: Literal["refuse", "allow"] = "refuse"
    samples: bool = True

    @property
    def folder(self) -> Path | None:
        """The folder of the users' suites."""
        return None if self.suites is None else self.suites.path
