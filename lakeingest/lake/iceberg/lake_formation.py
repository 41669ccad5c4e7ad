"""Lake Formation: what it would refuse to a job that writes tables of Glue, as far as it tells the job."""

from collections.abc import Iterator
from typing import Any

from lakeingest import config
from lakeingest.config import amazon

_EVERYONE = "IAM_ALLOWED_PRINCIPALS"  # the group that leaves all rights to IAM
_CREATING = {"CREATE_DATABASE", "CREATE_TABLE", "ALL"}
_TRIES = 2


def findings(settings: config.Target) -> tuple[str, ...]:
    """What the role of this machine lacks, each with its fix. OperatorNeeded or Retryable where nobody can be asked.

    A location or a database that is not governed needs nothing. Rights of single tables are not looked at: whoever
    creates a table has them all.
    """
    region = settings.catalog.given.get("glue.region") or settings.storage.region
    formation = amazon.client("lakeformation", region, _TRIES)
    with amazon.named("Lake Formation"):
        role = _role(amazon.client("sts", region, _TRIES).get_caller_identity()["Arn"])
        rules = formation.get_data_lake_settings()["DataLakeSettings"]
        if role in _principals(rules.get("DataLakeAdmins", ())):
            return ()
        rights = _pages(formation.list_permissions, "PrincipalResourcePermissions")
        granted = [one for one in rights if one["Principal"]["DataLakePrincipalIdentifier"] == role]
        registered = list(_pages(formation.list_resources, "ResourceInfoList"))
    location = f"arn:aws:s3:::{settings.warehouse.uri.partition('://')[2]}"
    allowed = any(_covers(place, location) for place in _locations(granted))
    found = [
        f"{one['ResourceArn']} is registered with Lake Formation: grant {role} DATA_LOCATION_ACCESS there; it needs"
        " its own rights in IAM to the files, which a registered location often lacks"
        for one in registered
        if not allowed and not one.get("HybridAccessEnabled") and _covers(one["ResourceArn"], location)
    ]
    by_default = _principals(one["Principal"] for one in rules.get("CreateTableDefaultPermissions", ()))
    may_create = any(_CREATING.intersection(one["Permissions"]) for one in granted)
    if _EVERYONE not in by_default and not may_create:
        databases = "in their databases, or CREATE_DATABASE in the catalog"
        found.append(f"Lake Formation governs new tables: grant {role} CREATE_TABLE {databases}")
    return tuple(found)


def _role(caller: str) -> str:
    """The role, or the user, of a caller: the session of a role has another ARN, which no right is granted to."""
    kind, _, name = caller.partition(":assumed-role/")
    return f"{kind.replace(':sts:', ':iam:')}:role/{name.partition('/')[0]}" if name else caller


def _principals(given: Any) -> set[str]:
    return {one["DataLakePrincipalIdentifier"] for one in given}


def _locations(granted: list[Any]) -> Iterator[str]:
    for one in granted:
        if "DATA_LOCATION_ACCESS" in one["Permissions"]:
            yield one["Resource"]["DataLocation"]["ResourceArn"]


def _covers(place: str, location: str) -> bool:
    """Whether a location of Lake Formation, a prefix, has this one in it."""
    return f"{location}/".startswith(f"{place.rstrip('*').rstrip('/')}/")


def _pages(ask: Any, name: str) -> Iterator[Any]:
    """All entries of a list; botocore has no paginator for it."""
    token: dict[str, str] = {}
    while True:
        answer = ask(**token)
        yield from answer[name]
        if not (following := answer.get("NextToken")):
            return
        token = {"NextToken": following}
