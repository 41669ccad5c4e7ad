import pytest
from pydantic import ValidationError

from lakeingest.config import Source

PIN, OTHER = "sha256:" + "A" * 43 + "=", "sha256:" + "B" * 43 + "="
ACCOUNT = {"host": "db.example.com", "user": "lake"}


@pytest.mark.parametrize(
    ("password", "region"), [("aws-rds-iam://", ""), ("aws-rds-iam://us-gov-west-1", "us-gov-west-1")]
)
def test_a_password_may_be_a_token_of_a_region(password: str, region: str) -> None:
    """Without a region it is that of the environment."""
    assert Source.model_validate(ACCOUNT | {"password": password}).token_region == region


def test_any_other_password_is_itself() -> None:
    """No token is asked for."""
    assert Source.model_validate(ACCOUNT | {"password": "aws-rds-iam"}).token_region is None


def test_a_token_of_what_is_no_region_is_refused() -> None:
    """An instance's name in this place would be a wrong host in the signature."""
    with pytest.raises(ValidationError, match="aws-rds-iam://REGION"):
        Source.model_validate(ACCOUNT | {"password": "aws-rds-iam://shop.abc.eu-west-1.rds.amazonaws.com"})


def test_rows_are_read_from_the_replica_with_the_account_of_the_source() -> None:
    """Where there is none, from the source itself."""
    alone = Source.model_validate(ACCOUNT | {"password": "p", "max_connections": 4})
    assert alone.of_rows is alone
    source = Source.model_validate(alone.model_dump() | {"replica": {"host": "other.example.com", "port": 3307}})
    assert source.of_rows == alone.model_copy(update={"host": "other.example.com", "port": 3307})


@pytest.mark.parametrize("mode", ["disabled", "preferred", "required"])
def test_a_token_for_a_server_that_proves_nothing_is_refused(mode: str) -> None:
    """Whoever gets it may log in with it for 15 minutes."""
    with pytest.raises(ValidationError, match=r"tls\.mode"):
        Source.model_validate(ACCOUNT | {"password": "aws-rds-iam://", "tls": {"mode": mode}})


def test_one_pin_or_several_prove_the_server() -> None:
    """Also to a token."""
    one = Source.model_validate(ACCOUNT | {"password": "aws-rds-iam://", "tls": {"pin": PIN}})
    assert (one.tls.pin, one.tls_mode, one.is_proven) == ((PIN,), "required", True)
    several = Source.model_validate(ACCOUNT | {"tls": {"pin": [PIN, OTHER], "mode": "required"}})
    assert several.tls.pin == (PIN, OTHER)


@pytest.mark.parametrize(
    ("tls", "why"),
    [
        ({"pin": "sha256:abc"}, "pin is sha256: and the Base64 of a SHA-256"),
        ({"pin": [PIN, PIN.removeprefix("sha256:")]}, "pin is sha256:"),
        ({"pin": PIN, "ca": "ca.pem"}, "pin proves the server by itself"),
        ({"pin": PIN, "mode": "verify_ca"}, "pin proves the server by itself"),
        ({"pin": PIN, "mode": "preferred"}, "pin proves the server by itself"),
        ({"server_public_key": "key.pem"}, "server_public_key is for connections without TLS"),
        ({"server_public_key": "key.pem", "mode": "required"}, "server_public_key is for connections without TLS"),
    ],
)
def test_what_would_be_ignored_is_refused(tls: dict[str, object], why: str) -> None:
    """A key that proves nothing beside the others would be trusted for nothing."""
    with pytest.raises(ValidationError, match=why):
        Source.model_validate(ACCOUNT | {"tls": tls})
