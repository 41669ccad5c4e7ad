"""The server that tables are read from: `source` of pipeline.yml."""

import re
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, PrivateAttr, SecretStr, model_validator

from lakeingest.config.frozen import Frozen

IAM_TOKENS = "aws-rds-iam://"
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def _certificates(file: Path) -> str:
    text = file.read_text("ascii", errors="ignore")  # a comment may have other characters
    if "-----BEGIN" not in text:
        raise OSError("it has no certificate")
    return text


class Tls(Frozen):
    """How the connection to the source is protected; `mode` None: preferred on loopback, else required."""

    mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] | None = None
    ca: Path | None = None
    _read: str | None = PrivateAttr(default=None)

    def authority(self) -> str | None:
        """The certificates of `ca`, None without it; OSError if it cannot be read.

        They are pickled with this value: a task on another machine has what the driver has read.
        """
        if self.ca is not None:
            try:
                self._read = _certificates(self.ca)
            except OSError:
                if self._read is None:
                    raise
        return self._read


class Ssh(Frozen):
    """The SSH server that leads to the source. `key` and `known_hosts` are files, or the text of such files."""

    host: str
    port: int = Field(default=22, ge=1, le=65535)
    user: str
    key: SecretStr
    known_hosts: str

    @staticmethod
    def is_file(given: str) -> bool:
        """Whether this is the name of a file; otherwise it is the text of private or of known keys."""
        return not re.search(r"-----BEGIN | (ssh|ecdsa)-", given)

    def below(self, folder: Path) -> Self:
        """The same, with relative paths taken from `folder`."""
        given = {"key": self.key.get_secret_value(), "known_hosts": self.known_hosts}
        found = {name: str(folder / text) if self.is_file(text) else text for name, text in given.items()}
        return self.model_copy(update={"key": SecretStr(found["key"]), "known_hosts": found["known_hosts"]})


class Replica(Frozen):
    """A replica of the source, from which rows are read; the binlog is read from the source."""

    host: str
    port: int = Field(default=3306, ge=1, le=65535)


class Source(Frozen):
    """The server that tables are read from; a pipeline.yml has exactly one server."""

    type: Literal["mysql"] = "mysql"
    host: str
    port: int = Field(default=3306, ge=1, le=65535)
    user: str
    password: SecretStr = SecretStr("")
    tls: Tls = Tls()
    ssh: Ssh | None = None
    replica: Replica | None = None
    server_ids: str = Field(default="auto", coerce_numbers_to_str=True)
    max_connections: int = Field(default=8, ge=2)

    @property
    def of_rows(self) -> Self:
        """The server that rows of tables are read from: the replica, if there is one."""
        if self.replica is None:
            return self
        return self.model_copy(update={"host": self.replica.host, "port": self.replica.port, "replica": None})

    @property
    def tls_mode(self) -> str:
        """The mode in force."""
        return self.tls.mode or ("preferred" if self.host in _LOOPBACK else "required")

    @property
    def token_region(self) -> str | None:
        """The AWS region in which tokens stand in for the password, '' for the environment's; None without tokens."""
        password = self.password.get_secret_value()
        return password.removeprefix(IAM_TOKENS) if password.startswith(IAM_TOKENS) else None

    @property
    def server_id_range(self) -> range:
        """The replication server ids that readers may take."""
        if self.server_ids == "auto":
            return range(2**30, 2**31)
        low, _, high = self.server_ids.partition("-")
        return range(int(low), int(high or low) + 1)

    @model_validator(mode="after")
    def _tokens_are_encrypted(self) -> Self:
        if self.token_region is None:
            return self
        if not re.fullmatch(r"([a-z]{2}(-[a-z]+)+-[0-9]+)?", self.token_region):
            raise ValueError(f"password is {IAM_TOKENS} or {IAM_TOKENS}REGION, such as {IAM_TOKENS}eu-west-1")
        if self.tls_mode in {"disabled", "preferred"}:
            raise ValueError(f"tls.mode is {self.tls_mode}, and a token is sent as it is: use verify_identity")
        return self

    @model_validator(mode="after")
    def _server_ids_are_a_range(self) -> Self:
        if self.server_ids != "auto" and not re.fullmatch(r"[1-9]\d*(-[1-9]\d*)?", self.server_ids):
            raise ValueError("server_ids is `auto` or a range such as 5400-5499")
        if not self.server_id_range:
            raise ValueError("server_ids is an empty range")
        if self.server_id_range[-1] >= 2**32:
            raise ValueError(f"server_ids end at {2**32 - 1}")
        return self
