"""Where the figures of runs go: `metrics` of pipeline.yml."""

from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from lakeingest.config.endpoints import assert_endpoint, is_plain_text
from lakeingest.config.frozen import Frozen

ENDING = ".prom"  # the text file collector of Prometheus' node exporter reads no other file


class Metrics(Frozen):
    """Where metrics go. Nothing is measured for a place that is None or False.

    `textfile`: a file, written while a run is at work, and at its end. `port`, `address`: where a
    run with `--follow` answers requests. `push`: the URL of a push gateway, to which `push_user` logs in.
    `opentelemetry`: metrics and spans go where the variables OTEL_* say. The other places get Prometheus' format.
    """

    textfile: Path | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    address: str = "127.0.0.1"
    push: str | None = None
    push_user: str | None = None
    push_password: SecretStr = SecretStr("")
    opentelemetry: bool = False

    @property
    def is_set(self) -> bool:
        """Whether metrics are asked for."""
        return self.opentelemetry or (self.textfile, self.port, self.push) != (None, None, None)

    @property
    def push_host(self) -> str | None:
        """The host and port of the push gateway; None without one."""
        return None if self.push is None else urlsplit(self.push).netloc or None

    @field_validator("textfile")
    @classmethod
    def _assert_ending(cls, path: Path | None) -> Path | None:
        if path is not None and path.suffix != ENDING:
            raise ValueError(f"the name of the file must end in {ENDING}, or nobody reads it")
        return path

    @model_validator(mode="after")
    def _assert_gateway(self) -> Self:
        """Raise ValueError for a wrong URL, and for a password that would be sent in plain text."""
        if self.push is None:
            if self.push_user is not None or self.push_password.get_secret_value():
                raise ValueError("push_user and push_password are for push, which is not set")
            return self
        if "${" in self.push:  # only the run knows the URL
            return self
        if not self.push.startswith(("http://", "https://")):
            raise ValueError("push is the URL of a push gateway, http://… or https://…")
        assert_endpoint("push", self.push)
        if self.push_password.get_secret_value() and is_plain_text(self.push):
            raise ValueError("push_password would be sent in plain text: let push be an https:// URL")
        return self

    def below(self, folder: Path) -> Self:
        """The same settings with absolute paths: relative paths are taken from `folder`."""
        return self if self.textfile is None else self.model_copy(update={"textfile": folder / self.textfile})
