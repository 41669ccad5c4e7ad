"""Secrets by reference: pipeline.yml says where a secret is kept, and its value is fetched when it is used.

The references are `aws-secretsmanager://NAME`, `gcp-secretmanager://projects/P/secrets/NAME` and `file:///PATH`. With
`#KEY` at the end, the secret is a JSON document, and this key's value is used. Messages name references, never values.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from lakeingest.config import amazon
from lakeingest.errors import ConfigError, LakeIngestError, OperatorNeeded, Retryable

SCHEMES = ("aws-secretsmanager", "gcp-secretmanager", "file")
_REFERENCE = re.compile(rf"(?P<scheme>{'|'.join(SCHEMES)})://(?P<name>[^#\s]+)(#(?P<key>\S+))?")
_GOOGLE_NAME = re.compile(r"projects/[^/]+/secrets/[^/]+(/versions/[^/]+)?")
# The keys of pipeline.yml that hold secrets; `*` stands for each key of a mapping.
_PLACES = (
    ("source", "password"),
    ("target", "catalog", "uri"),
    ("target", "catalog", "properties", "*"),
    ("target", "storage", "properties", "*"),
)
_GOOGLE, _SECONDS = "https://secretmanager.googleapis.com", 30


def is_reference(text: object) -> bool:
    """Whether a value of pipeline.yml says where a secret is kept."""
    return isinstance(text, str) and text.partition("://")[0] in SCHEMES


def with_secrets(doc: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the values of the secrets that it refers to; each secret is fetched once.

    Raises:
        ConfigError: a reference is malformed, or its key is missing.
        OperatorNeeded: the secret does not exist, or we may not read it.
        Retryable: the service that keeps it does not answer.

    """
    secret_of = cache(_secret)
    filled = dict(doc)
    for place in _PLACES:
        filled = _replaced(filled, place, "", lambda reference, where: _value(reference, where, secret_of))
    return filled


def _replaced(doc: Any, place: tuple[str, ...], at: str, value: Callable[[str, str], str]) -> Any:
    """The document with each reference at `place` replaced by its value; `at` is the dotted key of the document."""
    if not place:
        return value(doc, at) if is_reference(doc) else doc
    if not isinstance(doc, Mapping):
        return doc
    first, rest = place[0], place[1:]
    inside = {key for key in doc if first in {"*", key}}
    return {
        key: _replaced(item, rest, f"{at}.{key}".lstrip("."), value) if key in inside else item
        for key, item in doc.items()
    }


def _value(reference: str, where: str, secret_of: Callable[[str, str], str]) -> str:
    """The value that a reference stands for; errors name its key in pipeline.yml, `where`."""
    parts = _REFERENCE.fullmatch(reference)
    if parts is None:
        raise ConfigError(f"{where}: {reference} is no reference of the form SCHEME://NAME or SCHEME://NAME#KEY")
    try:
        text = secret_of(parts["scheme"], parts["name"])
    except LakeIngestError as error:
        raise type(error)(f"{where}: {error}") from error
    if parts["key"] is None:
        return text
    try:
        value = json.loads(text)[parts["key"]]
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{where}: the secret {parts['name']} is no JSON document with {parts['key']}") from None
    return value if isinstance(value, str) else json.dumps(value)


def _secret(scheme: str, name: str) -> str:
    return {"aws-secretsmanager": _of_amazon, "gcp-secretmanager": _of_google, "file": _of_file}[scheme](name)


def _of_file(name: str) -> str:
    path = Path(name)
    if not path.is_absolute():
        raise ConfigError(f"file://{name} needs an absolute path, file:///PATH")
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no text") from None
    except OSError as error:
        raise OperatorNeeded(f"{path} cannot be read: {error.strerror or error}") from error


def _of_amazon(name: str) -> str:
    region = name.split(":")[3] if name.startswith("arn:") and name.count(":") > 3 else None  # noqa: PLR2004 - of an ARN
    keeper = amazon.client("secretsmanager", region)
    with amazon.named(f"Secrets Manager does not give the secret {name}"):
        answer = keeper.get_secret_value(SecretId=name)
    if "SecretString" not in answer:
        raise ConfigError(f"the secret {name} has bytes, no text")
    return str(answer["SecretString"])


def _of_google(name: str) -> str:
    if not _GOOGLE_NAME.fullmatch(name):
        raise ConfigError(f"gcp-secretmanager://{name} needs the form projects/P/secrets/NAME[/versions/N]")
    try:
        import google.auth
        from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError
        from google.auth.transport.requests import AuthorizedSession
        from requests import RequestException
    except ModuleNotFoundError as error:
        raise OperatorNeeded(f"{error}: pip install 'lakeingest[gcp]'") from error

    version = name if "/versions/" in name else f"{name}/versions/latest"
    try:
        credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
        session = AuthorizedSession(credentials)  # type: ignore[no-untyped-call]
        answer = session.get(f"{_GOOGLE}/v1/{version}:access", timeout=_SECONDS)
    except (DefaultCredentialsError, RefreshError) as error:
        raise OperatorNeeded(f"Secret Manager cannot be asked for {name}: {error}") from error
    except (TransportError, RequestException) as error:
        raise Retryable(f"Secret Manager does not answer: {error}") from error
    if answer.status_code >= 500 or answer.status_code == 429:  # noqa: PLR2004 - of HTTP
        raise Retryable(f"Secret Manager does not give the secret {name}: {answer.status_code}")
    if answer.status_code != 200:  # noqa: PLR2004
        raise OperatorNeeded(f"Secret Manager does not give the secret {name}: {answer.status_code}")
    return _decoded(answer.json()["payload"]["data"])


def _decoded(data: str) -> str:
    import base64

    return base64.b64decode(data).decode()
