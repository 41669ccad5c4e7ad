"""The server that tables are read from: `source` of pipeline.yml."""

import re
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr, SecretStr, field_validator, model_validator

from lakeingest.config.frozen import Frozen

IAM_TOKENS = "aws-rds-iam://"
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
PIN = "sha256:"
_PIN = re.compile(rf"{PIN}[A-Za-z0-9+/]{{43}}=")
VERIFYING = {"verify_ca", "verify_identity"}  # modes of TLS


def is_loopback(host: str) -> bool:
    """Whether a host name or address is the loopback of this machine, which other machines cannot reach."""
    return host in _LOOPBACK


def _read_pem(file: Path) -> str:
    """The text of a file with certificates or keys. Raises OSError for any other file."""
    text = file.read_text("ascii", errors="ignore")  # a comment may have other characters
    if "-----BEGIN" not in text:
        raise OSError("it has no certificate or key")
    return text


class Tls(Frozen):
    """How connections to the source are encrypted, and how the server proves that it is the right one.

    Without `mode`, the mode is the first of these that applies:
    1. `required` if there is a `pin`.
    2. `preferred` if the server is on loopback, and there is no `ca`.
    3. `verify_identity`.

    `pin` has hashes of public keys: the server must have one of these keys. `server_public_key` encrypts a password
    that is sent without TLS.
    """

    mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] | None = None
    ca: Path | None = None
    pin: tuple[str, ...] = ()
    server_public_key: Path | None = None
    _read: dict[str, str] = PrivateAttr(default_factory=dict)

    @field_validator("pin", mode="before")
    @classmethod
    def _one_or_several(cls, pins: Any) -> Any:
        """The pins as pydantic takes them. A user can write a single pin without a list."""
        return (pins,) if isinstance(pins, str) else pins

    @model_validator(mode="after")
    def _assert_one_proof(self) -> Self:
        """Raise ValueError for a malformed pin, or for a pin beside another proof of the server."""
        for pin in self.pin:
            if not _PIN.fullmatch(pin):
                raise ValueError(f"pin is {PIN} and the Base64 of a SHA-256, as errors print it")
        if self.pin and (self.ca is not None or self.mode not in {None, "required"}):
            raise ValueError("pin proves the server by itself: leave out mode and ca")
        return self

    @property
    def files(self) -> dict[str, Path]:
        """The paths of the files that keys of source.tls name, by the name of the key."""
        paths = {"ca": self.ca, "server_public_key": self.server_public_key}
        return {name: path for name, path in paths.items() if path is not None}

    def below(self, folder: Path) -> Self:
        """The same settings with absolute paths: relative paths are taken from `folder`."""
        return self.model_copy(update={name: folder / path for name, path in self.files.items()})

    def text(self, name: str) -> str | None:
        """The text of the file that the key `name` names; None if the key is not set.

        The text is stored in this object, and pickled with the object. So a task on another machine, where the file
        does not exist, has the text that the driver has read. Raises OSError if neither this call nor an earlier
        call could read the file.
        """
        if name in self.files:
            try:
                self._read[name] = _read_pem(self.files[name])
            except OSError:
                if name not in self._read:
                    raise
        return self._read.get(name)


class Ssh(Frozen):
    """The SSH server through which the source is reached. `key` and `known_hosts` are files, or contents of files."""

    host: str
    port: int = Field(default=22, ge=1, le=65535)
    user: str
    key: SecretStr
    known_hosts: str

    @staticmethod
    def is_file(text: str) -> bool:
        """True if the text is the name of a file; False if it is the content of a file of keys."""
        return not re.search(r"-----BEGIN | (ssh|ecdsa)-", text)

    def below(self, folder: Path) -> Self:
        """The same settings with absolute paths: relative paths are taken from `folder`. Contents of files stay."""
        key, known_hosts = (
            str(folder / text) if self.is_file(text) else text
            for text in (self.key.get_secret_value(), self.known_hosts)
        )
        return self.model_copy(update={"key": SecretStr(key), "known_hosts": known_hosts})


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
    _hash_key: bytes = PrivateAttr(b"")

    @property
    def of_rows(self) -> Self:
        """The server that rows of tables are read from: the replica, if there is one."""
        if self.replica is None:
            return self
        return self.model_copy(update={"host": self.replica.host, "port": self.replica.port, "replica": None})

    @property
    def tls_mode(self) -> str:
        """The mode of TLS that is used: `tls.mode`, or the default for these settings."""
        if self.tls.mode is not None:
            return self.tls.mode
        if self.tls.pin:
            return "required"
        return "preferred" if self.is_local and self.tls.ca is None else "verify_identity"

    @property
    def hash_key(self) -> bytes:
        """The key of `tables.hash_key`, with which executors hash values that they read; empty without it."""
        return self._hash_key

    def with_hash_key(self, key: bytes) -> Self:
        """The same source with this key. The key is pickled with the object, so that tasks elsewhere have it."""
        source = self.model_copy()
        source._hash_key = key  # noqa: SLF001 - of this class
        return source

    @property
    def is_local(self) -> bool:
        """Whether the server's address is the loopback of this machine (with `ssh`, of the SSH server)."""
        return is_loopback(self.host)

    @property
    def is_proven(self) -> bool:
        """Whether the server must prove who it is before a connection to it is used."""
        return bool(self.tls.pin) or self.tls_mode in VERIFYING

    @property
    def token_region(self) -> str | None:
        """The AWS region whose IAM tokens are used as passwords; None if no tokens are used.

        '' stands for the region that the environment names.
        """
        password = self.password.get_secret_value()
        return password.removeprefix(IAM_TOKENS) if password.startswith(IAM_TOKENS) else None

    @property
    def server_id_range(self) -> range:
        """The replication server ids that binlog readers can use."""
        if self.server_ids == "auto":
            return range(2**30, 2**31)  # so great that other servers are unlikely to have these ids
        low, _, high = self.server_ids.partition("-")
        return range(int(low), int(high or low) + 1)

    @model_validator(mode="after")
    def _assert_tokens_encrypted(self) -> Self:
        """Raise ValueError if the region of tokens is malformed, or if the server that gets tokens is not proven."""
        if self.token_region is None:
            return self
        if not re.fullmatch(r"([a-z]{2}(-[a-z]+)+-[0-9]+)?", self.token_region):
            raise ValueError(f"password is {IAM_TOKENS} or {IAM_TOKENS}REGION, such as {IAM_TOKENS}eu-west-1")
        if not self.is_proven:
            raise ValueError(
                f"tls.mode is {self.tls_mode}, which proves no server, and a token is sent as it is: use"
                " verify_identity, or tls.pin"
            )
        return self

    @model_validator(mode="after")
    def _assert_public_key_used(self) -> Self:
        """Raise ValueError if `server_public_key` has no effect: in this mode, no password is sent without TLS."""
        if self.tls.server_public_key is not None and self.tls_mode not in {"disabled", "preferred"}:
            raise ValueError(
                f"tls.server_public_key is for connections without TLS, and tls.mode is {self.tls_mode}: leave it out,"
                " or set mode: disabled"
            )
        return self

    @model_validator(mode="after")
    def _assert_server_ids(self) -> Self:
        """Raise ValueError if `server_ids` is malformed, an empty range, or has numbers of more than 32 bits."""
        if self.server_ids != "auto" and not re.fullmatch(r"[1-9]\d*(-[1-9]\d*)?", self.server_ids):
            raise ValueError("server_ids is `auto` or a range such as 5400-5499")
        if not self.server_id_range:
            raise ValueError("server_ids is an empty range")
        if self.server_id_range[-1] >= 2**32:
            raise ValueError(f"server_ids end at {2**32 - 1}")
        return self
