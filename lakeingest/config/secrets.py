"""Secrets by reference: pipeline.yml says where a secret is stored; loading the file fetches the secret.

The references are `aws-secretsmanager://NAME`, `gcp-secretmanager://projects/P/secrets/NAME` and `file:///PATH`. If a
reference ends in `#KEY`, the secret is a JSON document, and the value of this key in it is used. Messages have the
references, never the values.
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
_SECRET_KEYS = (
    ("source", "password"),
    ("tables", "hash_key"),
    ("metrics", "push_password"),
    ("notify", "webhook"),
    ("notify", "openlineage", "api_key"),
    ("target", "catalog", "uri"),
    ("target", "catalog", "properties", "*"),
    ("target", "storage", "properties", "*"),
)
_GOOGLE, _TIMEOUT_SECONDS = "https://secretmanager.googleapis.com", 30


def is_reference(text: object) -> bool:
    """Whether a value of pipeline.yml is a reference to a secret."""
    return isinstance(text, str) and text.partition("://")[0] in SCHEMES


def with_secrets(doc: Mapping[str, Any]) -> dict[str, Any]:
    """The document with each reference to a secret replaced by the secret's value. Each secret is fetched once.

    Raises:
        ConfigError: a reference is malformed, or the secret does not have the key.
        OperatorNeeded: the secret does not exist, or the caller has no right to read it.
        Retryable: the service that stores the secret does not answer.

    """
    fetch_once = cache(_fetch)

    def resolve(reference: str, dotted_key: str) -> str:
        return _value_of(reference, dotted_key, fetch_once)

    filled = dict(doc)
    for path in _SECRET_KEYS:
        filled = _with_values(filled, path, "", resolve)
    return filled


def _with_values(doc: Any, path: tuple[str, ...], doc_key: str, resolve: Callable[[str, str], str]) -> Any:
    """The document with each reference at this path of keys replaced by `resolve(reference, dotted_key)`.

    `doc` is the whole document or a value in it, `doc_key` its dotted key, '' for the whole document. `*` in the path
    stands for each key.
    """
    if not path:
        return resolve(doc, doc_key) if is_reference(doc) else doc
    if not isinstance(doc, Mapping):
        return doc
    key_here, inner_path = path[0], path[1:]
    matching_keys = {key for key in doc if key_here in {"*", key}}
    return {
        key: _with_values(item, inner_path, f"{doc_key}.{key}".lstrip("."), resolve) if key in matching_keys else item
        for key, item in doc.items()
    }


def _value_of(reference: str, dotted_key: str, fetch_once: Callable[[str, str], str]) -> str:
    """The value that a reference stands for. Errors begin with the dotted key of the reference in pipeline.yml."""
    parts = _REFERENCE.fullmatch(reference)
    if parts is None:
        raise ConfigError(f"{dotted_key}: {reference} is no reference of the form SCHEME://NAME or SCHEME://NAME#KEY")
    try:
        text = fetch_once(parts["scheme"], parts["name"])
    except LakeIngestError as error:
        raise type(error)(f"{dotted_key}: {error}") from error
    if parts["key"] is None:
        return text
    try:
        value = json.loads(text)[parts["key"]]
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{dotted_key}: the secret {parts['name']} is no JSON document with {parts['key']}") from None
    return value if isinstance(value, str) else json.dumps(value)


def _fetch(scheme: str, name: str) -> str:
    """The text of a secret, from the service or the file that the scheme of its reference stands for."""
    fetchers = {
        "aws-secretsmanager": _fetch_from_amazon,
        "gcp-secretmanager": _fetch_from_google,
        "file": _fetch_from_file,
    }
    return fetchers[scheme](name)


def _fetch_from_file(name: str) -> str:
    """The text of the file with this path, without a line feed at its end."""
    path = Path(name)
    if not path.is_absolute():
        raise ConfigError(f"file://{name} needs an absolute path, file:///PATH")
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no text") from None
    except OSError as error:
        raise OperatorNeeded(f"{path} cannot be read: {error.strerror or error}") from error


def _fetch_from_amazon(name: str) -> str:
    """The text of a secret. An ARN names its region; any other secret is in the region of the environment."""
    fields = name.split(":")  # of an ARN: arn, partition, service, region, and more
    is_arn = fields[0] == "arn" and len(fields) > 4  # noqa: PLR2004 - the fields above
    region = fields[3] if is_arn else None
    client = amazon.client("secretsmanager", region)
    with amazon.translate_errors(f"Secrets Manager does not give the secret {name}"):
        answer = client.get_secret_value(SecretId=name)
    if "SecretString" not in answer:
        raise ConfigError(f"the secret {name} has bytes, no text")
    return str(answer["SecretString"])


def _fetch_from_google(name: str) -> str:
    """The text of a secret, in the version that `name` has; without one, in the latest version."""
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
        answer = session.get(f"{_GOOGLE}/v1/{version}:access", timeout=_TIMEOUT_SECONDS)
    except (DefaultCredentialsError, RefreshError) as error:
        raise OperatorNeeded(f"Secret Manager cannot be asked for {name}: {error}") from error
    except (TransportError, RequestException) as error:
        raise Retryable(f"Secret Manager does not answer: {error}") from error
    if answer.status_code >= 500 or answer.status_code == 429:  # noqa: PLR2004 - of HTTP
        raise Retryable(f"Secret Manager does not give the secret {name}: {answer.status_code}")
    if answer.status_code != 200:  # noqa: PLR2004
        raise OperatorNeeded(f"Secret Manager does not give the secret {name}: {answer.status_code}")
    return _decode_base64(answer.json()["payload"]["data"])


def _decode_base64(data: str) -> str:
    import base64

    return base64.b64decode(data).decode()
