"""Who is told about tables that fail, are stale or recover: `notify` of pipeline.yml."""

from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from lakeingest.config.endpoints import assert_endpoint, is_plain_text, names_server
from lakeingest.config.frozen import Frozen
from lakeingest.config.secrets import is_reference

Occasion = Literal["failed", "stale", "recovered"]


class OpenLineage(Frozen):
    """Who gets events of OpenLineage: the `url` that takes them, its key, and the `namespace` of the jobs there."""

    url: str
    api_key: SecretStr = SecretStr("")
    namespace: str = Field(default="lakeingest", min_length=1)

    @property
    def host(self) -> str | None:
        """The host and port that events go to."""
        return urlsplit(self.url).netloc or None

    @model_validator(mode="after")
    def _assert_url(self) -> Self:
        """Raise ValueError if `url` is not an HTTP URL, or if the API key would be sent in plain text."""
        if "${" in self.url:  # the environment of the run has the URL
            return self
        if not self.url.startswith(("http://", "https://")):
            raise ValueError("url must begin with https:// or http://, such as https://HOST/api/v1/lineage")
        assert_endpoint("url", self.url)
        if self.api_key.get_secret_value() and is_plain_text(self.url):
            raise ValueError("api_key would be sent in plain text: let url be an https:// URL")
        return self


class Notify(Frozen):
    """The `webhook` that gets a POST with a JSON document on each occasion in `on`.

    `format`: `slack` sends the document that Slack and its likes show as a message. `plain_http`: whether the document
    may be sent in plain text to another machine. `openlineage`: who gets events of OpenLineage.
    """

    webhook: SecretStr | None = None  # many such URLs have a token in them
    on: tuple[Occasion, ...] = ("failed", "stale", "recovered")
    format: Literal["json", "slack"] = "json"
    plain_http: Literal["refuse", "allow"] = "refuse"
    openlineage: OpenLineage | None = None

    @property
    def is_set(self) -> bool:
        """Whether anybody is to be told."""
        return self.webhook is not None or self.openlineage is not None

    @property
    def host(self) -> str | None:
        """The host and port that notifications go to; None without a webhook, or if only the run fetches its URL."""
        url = "" if self.webhook is None else self.webhook.get_secret_value()
        if is_reference(url):
            return None
        return urlsplit(url).netloc.rpartition("@")[2] or None  # without user and password

    @model_validator(mode="before")
    @classmethod
    def _with_on(cls, doc: Any) -> Any:
        """Take the key `on`, which is a boolean in YAML 1.1, for the text that a person has written."""
        if not isinstance(doc, dict):
            return doc  # pydantic reports it
        return {"on" if key is True else key: value for key, value in doc.items()}

    @model_validator(mode="after")
    def _assert_webhook(self) -> Self:
        """Raise ValueError if the webhook is no HTTP URL, or if `plain_http` refuses requests to it.

        The message has no part of the URL.
        """
        if self.webhook is None:
            return self
        url = self.webhook.get_secret_value()
        if is_reference(url) or "${" in url:  # only the run knows the URL
            return self
        if not names_server(url) or urlsplit(url).scheme not in {"http", "https"}:
            raise ValueError("webhook is the URL of a server, https://HOST/PATH")
        if self.plain_http == "refuse" and is_plain_text(url):
            raise ValueError("webhook would be sent in plain text: let it be an https:// URL, or set plain_http: allow")
        return self
