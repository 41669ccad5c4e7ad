"""The password of a new connection: the configured one, or a token that is made for this connection.

A token of AWS IAM is valid for 15 minutes, and the server checks it only at the login. So a token is never kept: each
connection gets a new one whenever it is opened. The token is signed here, without a request to AWS.
"""

import functools
from typing import Any

from lakeingest.config import Source
from lakeingest.errors import OperatorNeeded


def password_of(source: Source) -> bytes:
    """The password for a connection that is opened now. Raises OperatorNeeded if no token can be made."""
    region = source.token_region  # None: the source has a password; '': a token of the region that AWS's variables name
    return source.password.get_secret_value().encode() if region is None else _token(source, region).encode()


def _token(source: Source, region: str) -> str:
    """A token of AWS IAM. Raises OperatorNeeded if no token can be made."""
    try:
        from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise OperatorNeeded(
            f"source.password asks for tokens of AWS: {error}: pip install 'lakeingest[aws]'"
        ) from error
    try:
        signer = _signer(region or None)
        token: str = signer.generate_db_auth_token(source.host, source.port, source.user)
    except BotoCoreError as error:  # no credentials, no region
        raise OperatorNeeded(f"no token for {source.user} at {source.host}: {error}; see AWS's variables") from error
    return token


@functools.cache
def _signer(region: str | None) -> Any:
    """The client that signs tokens. It renews its own credentials, and is cached, because it takes long to make."""
    import boto3  # type: ignore[import-untyped]

    return boto3.Session().client("rds", region_name=region)
