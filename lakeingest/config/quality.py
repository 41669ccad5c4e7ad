"""`quality` of pipeline.yml: the users' suites of expectations, and what happens if rows fail them."""

from pathlib import Path
from typing import Literal

from lakeingest.config.frozen import Frozen
from lakeingest.config.place import Place


class Quality(Frozen):
    """The users' suites of expectations. `suites` is the folder of the suites; None if there is none.

    `on_failure` says what happens if rows fail. `sql` says whether SQL in suites is allowed: SQL can call any function
    of the JVM and read any file of the machine. `samples` says whether the pages of gates show values of rows that
    fail; if False, the pages show only the keys of such rows.
    """

    suites: Place | None = None
    on_failure: Literal["stop", "quarantine"] = "stop"
    sql: Literal["refuse", "allow"] = "refuse"
    samples: bool = True

    @property
    def folder(self) -> Path | None:
        """The path of the folder of the suites; None if there is none."""
        return None if self.suites is None else self.suites.path
