"""A lake format's package, as the rest of lakeingest uses it: one value."""

from collections.abc import Callable
from dataclasses import dataclass

from lakeingest import config
from lakeingest.config import Config
from lakeingest.config.tables import TableOptions
from lakeingest.core.ownership import Owner
from lakeingest.core.schema import TableId
from lakeingest.lake.ownership import Adoptions, Ownership
from lakeingest.lake.rollbacks import Rollbacks
from lakeingest.lake.target import OpenSpark, Target
from lakeingest.lake.versions import Versions


@dataclass(frozen=True, slots=True)
class FormatPackage:
    """The ports of a lake format. `config.formats.Format` has the facts that are known without its package.

    `unwritable` returns the reason why a warehouse in an object store cannot be written to; None when it can.
    `new_place` is the folder of a new copy, or the beginning of its name; None where no other copy can have it.
    """

    target: Callable[[Config, Ownership, OpenSpark], Target]
    adoptions: Callable[[Config, Owner], Adoptions]
    versions: Callable[[Config], Versions]
    rollbacks: Callable[[Config, Ownership], Rollbacks]
    unwritable: Callable[[config.Target], str | None]
    new_place: Callable[[config.Target, TableOptions, TableId], str | None]
