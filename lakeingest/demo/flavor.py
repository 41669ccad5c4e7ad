"""The servers that the demo and the tests can start: MySQL, and three versions of MariaDB."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

# The settings that lakeingest needs of a source. They are as durable as in production, but with sizes for a laptop.
_SETTINGS = {
    "server_id": "1",
    "log_bin": "binlog",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "sync_binlog": "1",
    "innodb_flush_log_at_trx_commit": "1",
    "innodb_buffer_pool_size": "256M",
    "max_binlog_size": "64M",
    "max_connections": "200",
    "max_allowed_packet": "256M",
    "character_set_server": "utf8mb4",
    "local_infile": "ON",
    "skip_name_resolve": "ON",
}


@dataclass(frozen=True, slots=True)
class Flavor:
    """A kind of server: its program, versions, Debian package, container image and settings.

    `oldest` is the oldest supported version, and `before` the first version that is too new, or None. `package` is the
    name of a package in the Debian suite `suite`. `image` is the official container image: it takes the administrator's
    password from the environment variable `password_variable`, because other users can read a program's arguments.
    """

    name: str
    program: str
    oldest: tuple[int, int]
    before: tuple[int, int] | None
    package: str
    suite: str
    image: str
    password_variable: str
    settings: Mapping[str, str] = field(hash=False)

    @property
    def is_mariadb(self) -> bool:
        """Whether the server is MariaDB. A data folder of MariaDB is set up in another way."""
        return self.program == "mariadbd"

    @property
    def wanted(self) -> str:
        """The supported versions, as a text."""
        versions = f"{'MariaDB' if self.is_mariadb else 'MySQL'} {_version(self.oldest)} or newer"
        return versions if self.before is None else f"{versions}, before {_version(self.before)}"


def _version(numbers: tuple[int, int]) -> str:
    return ".".join(map(str, numbers))


MYSQL = Flavor(
    name="MySQL",
    program="mysqld",
    oldest=(8, 4),
    before=None,
    package="mysql-server-core",
    suite="sid",  # the only suite with this package
    image="mysql:8.4",
    password_variable="MYSQL_ROOT_PASSWORD",  # noqa: S106 - the name of a variable
    settings=_SETTINGS
    | {
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
        "mysqlx": "OFF",
        "secure_file_priv": "NULL",
        "innodb_use_native_aio": "OFF",  # if ON, about 20 servers reach the machine's limit fs.aio-max-nr
    },
)

MARIADB_10_11 = Flavor(
    name="MariaDB 10.11",
    program="mariadbd",
    oldest=(10, 11),
    before=(10, 12),
    package="mariadb-server-core",
    suite="bookworm",
    image="mariadb:10.11",
    password_variable="MARIADB_ROOT_PASSWORD",  # noqa: S106
    settings=_SETTINGS,
)

MARIADB_11_4 = replace(
    MARIADB_10_11, name="MariaDB 11.4", oldest=(11, 4), before=(11, 5), suite="trixie", image="mariadb:11.4"
)

MARIADB_11_8 = replace(MARIADB_11_4, name="MariaDB 11.8", oldest=(11, 8), before=(11, 9), image="mariadb:11.8")
