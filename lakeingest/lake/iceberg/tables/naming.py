"""The names under which tables are built.

Until its first publish a table has a name with a random part, `<name>__lakeingest_new_<8 hexadecimal digits>`.
"""

import re
import secrets
from collections.abc import Iterable

from lakeingest.lake.marks import BUILDING

Name = tuple[str, str]

_BUILT = re.compile(rf"(?P<own>.+){BUILDING}_[0-9a-f]{{8}}", re.DOTALL)


def name_to_build(name: Name) -> Name:
    """A new name under which the table with this name is built."""
    return name[0], f"{beginning_of_names(name[1])}{secrets.token_hex(4)}"


def beginning_of_names(name: str) -> str:
    """How all names begin under which the table with this name is built. Names of other tables may begin so, too."""
    return f"{name}{BUILDING}_"


def is_name_for_building(name: str) -> bool:
    """Whether tables get this name only while they are built, before their first publish."""
    return _BUILT.fullmatch(name) is not None


def own_name(name: str) -> str:
    """The name that a table has from its first publish on."""
    built = _BUILT.fullmatch(name)
    return name if built is None else built["own"]


def built_names(names: Iterable[str]) -> dict[str, list[str]]:
    """The names for building among these names, by the names that their tables have from their first publish on.

    While thousands of tables are built, each of them asks for this.
    """
    found = dict[str, list[str]]()
    for name in names:
        if (own := own_name(name)) != name:
            found.setdefault(own, []).append(name)
    return found
