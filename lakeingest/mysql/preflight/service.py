"""Recognises the managed service of a server by its variables, and says how to change the service's settings.

SET GLOBAL is not allowed on these services. So a fix has to name the place where users of the service change a setting.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Service:
    """The instructions by which users of a service change settings, and the facts in which services differ.

    `setting`: how to set a variable to a value.
    `log`: how to switch the binlog on.
    `keeping`: how to keep binlog files for {seconds} or {hours}.
    `most_hours`: the longest time for which the service keeps binlog files; None if it allows any time.
    `by_procedure`: the service purges binlog files after a number of hours that a procedure of the service shows.
    `zero_keeps`: with a retention of 0 seconds, files are kept for ever; if False, they are purged as soon as the
    service does not need them.
    `unproven`: why a copy from this service may not be exact; None if no reason is known.
    """

    name: str
    setting: str
    log: str
    keeping: str
    most_hours: int | None = None
    by_procedure: bool = False
    zero_keeps: bool = True
    unproven: str | None = None

    def fix(self, name: str, value: str) -> str:
        """The instruction that sets the variable to the value."""
        literal = value if value.isdigit() or value == "ON" else f"'{value}'"
        return self.setting.format(name=name, literal=literal, value=value or "its default (empty)")

    def keep(self, seconds: int) -> str:
        """The instruction to keep binlog files for `seconds`, but for at most `most_hours`."""
        hours = -(-seconds // 3600)  # rounded up
        return self.keeping.format(
            seconds=seconds, hours=hours if self.most_hours is None else min(hours, self.most_hours)
        )


_HOURS = "CALL mysql.rds_set_configuration('binlog retention hours', {hours})"

OWN = Service(
    "",
    setting="SET GLOBAL {name} = {literal}",
    log="start the server with it",
    keeping="SET GLOBAL binlog_expire_logs_seconds = {seconds}",
)
RDS = Service(
    "Amazon RDS",
    setting="set {name} to {value} in the instance's DB parameter group, and reboot if it is static",
    log="switch automated backups on (a retention period of 1 day or more): Amazon RDS has no binlog without them",
    keeping=_HOURS,
    most_hours=168,
    by_procedure=True,
)
AURORA = Service(
    "Amazon Aurora",
    setting="set {name} to {value} in the DB cluster parameter group, and reboot the writer if it is static",
    log="set binlog_format to ROW in the DB cluster parameter group, and reboot the writer",
    keeping=_HOURS,
    most_hours=2160,
    by_procedure=True,
    unproven="the source is Amazon Aurora, on which lakeingest was not tested: its storage is its own, and nobody"
    " has proven in which order commits become visible there; run `lakeingest verify` after the copy, and regularly",
)
CLOUD_SQL = Service(
    "Cloud SQL",
    setting="set the instance's database flag {name} to {value}",
    log="switch point-in-time recovery on: Cloud SQL has no binlog without it",
    keeping="set the instance's database flag binlog_expire_logs_seconds to {seconds}",
)
AZURE = Service(
    "Azure Database for MySQL",
    setting="set the server parameter {name} to {value}",
    log="use a flexible server, which always has it",
    keeping="set the server parameter binlog_expire_logs_seconds to {seconds}",
    zero_keeps=False,
)


def service_of(variables: Mapping[str, str]) -> Service:
    """The service of a server with these global variables; OWN if no variable shows a service."""
    version, comment = variables.get("version", ""), variables.get("version_comment", "")
    if "aurora_version" in variables:
        return AURORA
    if variables.get("basedir", "").startswith("/rdsdbbin/") or "aws.amazon.com/rds" in comment:
        return RDS
    if "-google" in version or comment == "(Google)":
        return CLOUD_SQL
    return AZURE if "-azure" in version else OWN
