"""The system tables of a new MariaDB server. SQL files of the server create them; MySQL needs no such files."""

from collections.abc import Sequence
from pathlib import Path

from lakeingest.errors import OperatorNeeded

_SCRIPTS = ("system_tables.sql", "performance_tables.sql", "system_tables_data.sql")


def share_folder(command: Sequence[str]) -> Path:
    """The folder with the shared files of the server that this command runs. Raises OperatorNeeded if there is none."""
    # the program is in `usr/sbin` or `usr/bin`
    usr = next(Path(part).parents[1] for part in command if part.endswith("mariadbd"))
    for folder in (usr / "share" / "mariadb", usr / "share" / "mysql", usr / "share"):
        if any(folder.glob("*_system_tables.sql")):
            return folder
    raise OperatorNeeded("its system tables' statements are missing")


def system_tables_sql(folder: Path) -> str:
    """The statements that create the system tables, for a server in bootstrap mode (`--bootstrap`)."""
    # the files are named `mysql_…` or `mariadb_…`, by the version
    prefix = next(folder.glob("*_system_tables.sql")).name.removesuffix(_SCRIPTS[0])
    scripts = [(folder / f"{prefix}{name}").read_text(errors="replace") for name in _SCRIPTS]
    # NULL lets root log in by a password; with the package's own set-up, root would log in by a Unix socket
    return "\n".join(["USE mysql;", "SET @auth_root_socket = NULL;", *scripts, "FLUSH PRIVILEGES;", ""])
