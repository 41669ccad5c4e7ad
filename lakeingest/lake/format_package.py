"""One value with everything that the rest of lakeingest uses of a lake format's package."""

from collections.abc import Callable
from dataclasses import dataclass

from lakeingest import config
from lakeingest.config import Config
from lakeingest.config.tables import TableOptions
from lakeingest.core.copies.ownership import Owner
from lakeingest.core.tables.schema import TableId
from lakeingest.lake.foreign_tables import ForeignTables
from lakeingest.lake.known_copies import Finding
from lakeingest.lake.logs import Logs
from lakeingest.lake.ownership import Adoptions, Ownership
from lakeingest.lake.points import Points
from lakeingest.lake.rollbacks import Rollbacks
from lakeingest.lake.target import OpenSpark, Target
from lakeingest.lake.versions import Versions

Options = Callable[[TableId], TableOptions]


@dataclass(frozen=True, slots=True)
class FormatPackage:
    """What a lake format offers. `config.formats.Format` has the facts that are known without the package.

    The first six fields open the format's implementations of protocols; `foreign` is None if the format takes over no
    tables of other tools. `logs` returns the Logs of a target that `target` has opened; None if the time of an `append`
    would grow with the table. `unwritable` returns the reason why a warehouse in an object store cannot be written to;
    None if it can be written to. `new_place` returns the folder of a new copy, without the random digits that a folder
    may end with; None if two copies never get the same folder. `finding` is the Finding of a target that `target` has
    opened; None if the format's catalogs have no answer for all tables at once.
    """

    target: Callable[[Config, Options, Ownership, OpenSpark], Target]
    adoptions: Callable[[Config, Owner], Adoptions]
    versions: Callable[[Config], Versions]
    rollbacks: Callable[[Config, Ownership], Rollbacks]
    points: Callable[[Config], Points]
    foreign: Callable[[Config, Ownership], ForeignTables] | None
    logs: Callable[[Target], Logs | None]
    unwritable: Callable[[config.Target], str | None]
    new_place: Callable[[config.Target, TableOptions, TableId], str | None]
    finding: Callable[[Target], Finding] | None
