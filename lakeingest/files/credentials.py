"""Credentials that the client of an object store does not find without help."""

import os
from collections.abc import Mapping
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from lakeingest.errors import StorageFailed

_FRESH = timedelta(minutes=5)  # how long credentials are used: boto3 renews them long before they expire


def provider_of(uri: str, options: Mapping[str, str]) -> Any:
    """A provider of fresh credentials for a place in S3, by boto3. None: the store's client finds credentials itself.

    The client needs no help if an access key or `skip_signature` is set. Otherwise, boto3 is the provider if it is
    installed and finds credentials. Only boto3, Amazon's own library, reads profiles; it also finds credentials in
    Amazon's other places for them.
    Raises StorageFailed if AWS_PROFILE names a profile that cannot be used.
    """
    are_keys_configured = bool({"access_key_id", "skip_signature"} & options.keys())
    has_keys = are_keys_configured or "AWS_ACCESS_KEY_ID" in os.environ
    if has_keys or not uri.startswith(("s3://", "s3a://")):
        return None
    profile = os.environ.get("AWS_PROFILE")
    if find_spec("boto3") is None:
        if profile is None:  # the client also finds credentials in the environment and from roles
            return None
        raise StorageFailed(f"{uri}: the profile {profile} is read by boto3 alone: pip install 'lakeingest[aws]'")
    from boto3.session import Session  # type: ignore[import-untyped]
    from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        session = Session()
        return Boto3CredentialProvider(session, ttl=_FRESH) if session.get_credentials() else None
    except BotoCoreError as error:
        raise StorageFailed(f"{uri}: no credentials: {error}; correct AWS_PROFILE, or the profile") from error
