"""Lake Formation: the rights that a run needs to write tables of Glue, and does not have."""

from collections.abc import Iterator
from typing import Any

from lakeingest import config
from lakeingest.config import amazon

_EVERYONE = "IAM_ALLOWED_PRINCIPALS"  # the group of Lake Formation with which IAM alone decides
_CREATING = {"CREATE_DATABASE", "CREATE_TABLE", "ALL"}
_TRIES = 2


def missing_rights(settings: config.Target) -> tuple[str, ...]:
    """The rights that the role of this machine does not have, each with its fix.

    Rights are needed only for locations and databases that Lake Formation governs. Rights for single tables are not
    checked, because the creator of a table has them all. Raises OperatorNeeded or Retryable if the rights cannot be
    read.
    """
    region = settings.catalog.plain_properties.get("glue.region") or settings.storage.region
    formation = amazon.client("lakeformation", region, _TRIES)
    with amazon.translate_errors("Lake Formation"):
        role = _role(amazon.client("sts", region, _TRIES).get_caller_identity()["Arn"])
        rules = formation.get_data_lake_settings()["DataLakeSettings"]
        if role in _principals(rules.get("DataLakeAdmins", ())):  # an administrator needs no further right
            return ()
        rights = _pages(formation.list_permissions, "PrincipalResourcePermissions")
        granted = [right for right in rights if right["Principal"]["DataLakePrincipalIdentifier"] == role]
        registered = list(_pages(formation.list_resources, "ResourceInfoList"))
    # the right to use the warehouse, if Lake Formation governs it
    warehouse = f"arn:aws:s3:::{settings.warehouse.uri.partition('://')[2]}"
    may_use_warehouse = any(_covers(location, warehouse) for location in _locations(granted))
    missing = []
    for resource in registered:
        # in hybrid mode, IAM decides for all who have not opted in
        is_governed = _covers(resource["ResourceArn"], warehouse) and not resource.get("HybridAccessEnabled")
        if is_governed and not may_use_warehouse:
            missing.append(
                f"{resource['ResourceArn']} is registered with Lake Formation: grant {role} DATA_LOCATION_ACCESS there;"
                " it needs its own rights in IAM to the files, which a registered location often lacks"
            )
    # the right to create tables, unless new tables give rights to the group _EVERYONE: then IAM alone decides
    by_default = _principals(right["Principal"] for right in rules.get("CreateTableDefaultPermissions", ()))
    may_create = any(_CREATING.intersection(right["Permissions"]) for right in granted)
    if _EVERYONE not in by_default and not may_create:
        where = "in their databases, or CREATE_DATABASE in the catalog"
        missing.append(f"Lake Formation governs new tables: grant {role} CREATE_TABLE {where}")
    return tuple(missing)


def _role(caller: str) -> str:
    """The ARN to which rights are granted: that of the role, if the ARN of the caller names a session with a role.

    Any other ARN is returned as it is.
    """
    kind, _, name = caller.partition(":assumed-role/")
    return f"{kind.replace(':sts:', ':iam:')}:role/{name.partition('/')[0]}" if name else caller


def _principals(principals: Any) -> set[str]:
    """The identifiers of these principals."""
    return {principal["DataLakePrincipalIdentifier"] for principal in principals}


def _locations(granted: list[Any]) -> Iterator[str]:
    """The ARNs of the locations that these rights let a role use."""
    for right in granted:
        if "DATA_LOCATION_ACCESS" in right["Permissions"]:
            yield right["Resource"]["DataLocation"]["ResourceArn"]


def _covers(prefix: str, location: str) -> bool:
    """Whether `prefix`, a location of Lake Formation that may end with `*`, contains the folder `location`."""
    return f"{location}/".startswith(f"{prefix.rstrip('*').rstrip('/')}/")


def _pages(ask: Any, name: str) -> Iterator[Any]:
    """All entries of the list `name`, which `ask` returns in pages. botocore has no paginator for these requests."""
    token: dict[str, str] = {}
    while True:
        answer = ask(**token)
        yield from answer[name]
        if not (following := answer.get("NextToken")):
            return
        token = {"NextToken": following}
