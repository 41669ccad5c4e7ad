"""What `check` says of Lake Formation, asked of moto."""

from collections.abc import Iterator
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from moto import mock_aws

from lakeingest.config import Target
from lakeingest.errors import LakeIngestError
from lakeingest.lake.iceberg.catalogs.lake_formation import missing_rights

ROLE, REGION = "arn:aws:iam::123456789012:role/loader", "eu-west-1"
BUCKET = "arn:aws:s3:::company-lake"
SETTINGS = Target.model_validate(
    {
        "catalog": {"type": "glue"},
        "warehouse": "s3://company-lake/warehouse",
        "storage": {"region": REGION},
    }
)


@pytest.fixture
def formation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Lake Formation; the caller is a session of a role."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        sts = boto3.client("sts", region_name=REGION)
        keys = sts.assume_role(RoleArn=ROLE, RoleSessionName="nightly")["Credentials"]
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys["SecretAccessKey"])
        monkeypatch.setenv("AWS_SESSION_TOKEN", keys["SessionToken"])
        yield boto3.client("lakeformation", region_name=REGION)


def grant(formation: Any, resource: dict[str, Any], right: str) -> None:
    """Grant the role a right."""
    who = {"DataLakePrincipalIdentifier": ROLE}
    formation.grant_permissions(Principal=who, Resource=resource, Permissions=[right])


def govern(formation: Any, *admins: str) -> None:
    """Let Lake Formation govern new tables, instead of IAM alone."""
    listed = [{"DataLakePrincipalIdentifier": one} for one in admins]
    formation.put_data_lake_settings(DataLakeSettings={"DataLakeAdmins": listed, "CreateTableDefaultPermissions": []})


def test_an_account_that_governs_nothing_is_fine(formation: Any) -> None:
    """The default of every account."""
    assert missing_rights(SETTINGS) == ()


@pytest.mark.parametrize(
    ("registered", "is_ours"),
    [(BUCKET, True), (f"{BUCKET}/warehouse/", True), (f"{BUCKET}/ware", False), (f"{BUCKET}/other", False)],
)
def test_a_registered_location_needs_a_right(formation: Any, registered: str, is_ours: bool) -> None:  # noqa: FBT001
    """It has the warehouse in it, and not only the beginning of its name."""
    formation.register_resource(ResourceArn=registered, UseServiceLinkedRole=True)
    found = missing_rights(SETTINGS)
    assert len(found) == is_ours
    assert all(
        f"{registered} is registered with Lake Formation: grant {ROLE} DATA_LOCATION_ACCESS" in one for one in found
    )
    grant(formation, {"DataLocation": {"ResourceArn": registered}}, "DATA_LOCATION_ACCESS")
    assert missing_rights(SETTINGS) == ()


def test_governed_tables_need_a_right_to_create_them(formation: Any) -> None:
    """Until the role has one, or is an administrator."""
    govern(formation)
    [found] = missing_rights(SETTINGS)
    assert found.startswith(f"Lake Formation governs new tables: grant {ROLE} CREATE_TABLE")
    grant(formation, {"Database": {"Name": "shop"}}, "CREATE_TABLE")
    assert missing_rights(SETTINGS) == ()


@pytest.mark.long("takes seconds")
def test_an_administrator_needs_nothing(formation: Any) -> None:
    """Whatever is registered and governed."""
    formation.register_resource(ResourceArn=BUCKET, UseServiceLinkedRole=True)
    govern(formation, ROLE)
    assert missing_rights(SETTINGS) == ()


def test_where_nobody_can_be_asked_an_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` says nothing then."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    with pytest.raises(LakeIngestError, match="Lake Formation"):
        missing_rights(SETTINGS)
