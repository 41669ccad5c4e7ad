"""The system tables of a new MariaDB. They are created by statements from its package; MySQL creates its own itself."""

from collections.abc import Sequence
from pathlib import Path

from lakeingest.errors import OperatorNeeded

_SCRIPTS = ("system_tables.sql", "performance_tables.sql", "system_tables_data.sql")


def share(command: Sequence[str]) -> Path:
    """The folder of shared files of the server that this command runs. OperatorNeeded if it is not there."""
    usr = next(Path(part).parents[1] for part in command if part.endswith("mariadbd"))
    for folder in (usr / "share" / "mariadb", usr / "share" / "mysql", usr / "share"):
        if any(folder.glob("*_system_tables.sql")):
            return folder
    raise OperatorNeeded("its system tables' statements are missing")


def system_tables(folder: Path) -> str:
    """The statements that create the system tables, for a server in bootstrap mode (`--bootstrap`)."""
    prefix = next(folder.glob("*_system_tables.sql")).name.removesuffix(_SCRIPTS[0])
    scripts = [(folder / f"{prefix}{name}").read_text(errors="replace") for name in _SCRIPTS]
    # root gets a password, unlike in the package
    return "\n".join(["USE mysql;", "SET @auth_root_socket = NULL;", *scripts, "FLUSH PRIVILEGES;", ""])
