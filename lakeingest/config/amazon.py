"""Requests to services of AWS: a client with timeouts, and the errors of lakeingest for failed requests."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from lakeingest.errors import ConfigError, OperatorNeeded, Retryable

EXTRA = "pip install 'lakeingest[aws]'"
_CONNECT_SECONDS, _READ_SECONDS, _TRIES = 10, 60, 6
# The codes with which AWS's services say that the caller has no right (_RIGHTS), or that they do not know a name from
# pipeline.yml (_NAMES).
_RIGHTS = {
    "AccessDenied",
    "AccessDeniedException",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    "UnauthorizedOperation",
    "UnrecognizedClientException",
}
_NAMES = {"ResourceNotFoundException", "ValidationException", "InvalidRequestException", "NoSuchBucket", "404"}
_SERVER_ERRORS, _TOO_MANY = 500, 429


def client(service: str, region: str | None, tries: int = _TRIES) -> Any:
    """The client of a service. It sends a request up to `tries` times if the service throttles or does not answer.

    The client finds credentials and endpoints where AWS's own tools do. Raises OperatorNeeded if boto3 is missing.
    """
    try:
        import boto3  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise OperatorNeeded(f"{error}: {EXTRA}") from error

    retries = {"mode": "standard", "total_max_attempts": tries}
    settings = Config(connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS, retries=retries)
    with translate_errors(service):
        return boto3.Session().client(service, region_name=region, config=settings)


def require_client() -> None:
    """Raise OperatorNeeded if boto3, AWS's client, is not installed."""
    if find_spec("boto3") is None:
        raise OperatorNeeded(f"boto3 is not here: {EXTRA}")


def credentials() -> dict[str, str]:
    """The credentials that AWS's own tools would use here, under obstore's names; empty if there are none."""
    import boto3

    with translate_errors("AWS credentials"):
        session_credentials = boto3.Session().get_credentials()
        keys = None if session_credentials is None else session_credentials.get_frozen_credentials()
    boto_names = {"access_key_id": "access_key", "secret_access_key": "secret_key", "session_token": "token"}
    values = {name: getattr(keys, boto_name, None) for name, boto_name in boto_names.items()}  # None without keys
    return {name: value for name, value in values.items() if value}


@contextmanager
def translate_errors(doing: str, key: str | None = None) -> Iterator[None]:
    """Turn errors of requests within the block into errors of lakeingest. Their messages begin with `doing`.

    `key` is the key of pipeline.yml whose value the request names, for example a cluster, if there is one.

    Raises:
        Retryable: the service does not answer, throttles or fails.
        OperatorNeeded: there are no credentials, the caller has no right to do this, or the request failed otherwise.
        ConfigError: the service does not know the value of `key`; the message has the key.

    """
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError  # type: ignore[import-untyped]
    from botocore.exceptions import ConnectionError as NotConnected

    try:
        yield
    except (HTTPClientError, NotConnected) as error:
        raise Retryable(f"{doing}: no answer: {error}; run the same command again") from error
    except ClientError as error:
        code, status = error.response["Error"]["Code"], error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
        is_throttled = status == _TOO_MANY or "Throttl" in code or code == "RequestLimitExceeded"
        if status >= _SERVER_ERRORS or is_throttled:
            raise Retryable(f"{doing}: {error}; run the same command again") from error
        if key is not None and code in _NAMES:
            raise ConfigError(f"{key}: {doing}: {error}") from error
        if code in _RIGHTS:
            raise OperatorNeeded(f"{doing}: {error}; correct the credentials, or their rights in IAM") from error
        raise OperatorNeeded(f"{doing}: {error}") from error
    except BotoCoreError as error:  # no credentials, no region, no such profile
        raise OperatorNeeded(f"{doing}: {error}; see AWS's variables and ~/.aws") from error
