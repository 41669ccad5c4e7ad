"""Folders on this machine, or in an object store."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from lakeingest.core.file_names import joined

_LOCAL = re.compile(r"^file:/+")
_REMOTE = re.compile(r"^([a-z][a-z0-9]+)://[^/]")


@dataclass(frozen=True, slots=True)
class Place:
    """A folder; not to be confused with a place in the binlog.

    `written`: the folder's path or, in an object store, its URI, such as s3://bucket/folder.
    """

    written: str

    @classmethod
    def of(cls, place: "str | Path | Place") -> Self:
        """The folder for a path or a URI that a user has written."""
        text = _LOCAL.sub("/", str(place))
        return cls(text.rstrip("/") if _REMOTE.match(text) else str(Path(text)))

    @property
    def scheme(self) -> str | None:
        """The kind of object store, such as s3; None for a folder of this machine."""
        match = _REMOTE.match(self.written)
        return match and match[1]

    @property
    def path(self) -> Path:
        """The path of a folder on this machine. Raises ValueError for a folder in an object store."""
        if self.scheme is not None:
            raise ValueError(f"{self} is no folder of this machine")
        return Path(self.written)

    @property
    def uri(self) -> str:
        """The folder as a URI."""
        return self.path.as_uri() if self.scheme is None else self.written

    @property
    def hadoop(self) -> str:
        """The folder as Spark's readers and writers take it: a path, or a URI with the scheme of Hadoop's client."""
        return re.sub(r"^s3:", "s3a:", self.written)

    def __truediv__(self, name: str) -> Self:
        return type(self)(joined(self.written, name))

    def below(self, folder: Path) -> Self:
        """The same folder with an absolute path: a relative path is taken from `folder`."""
        return self if self.scheme is not None else type(self)(str((folder / self.path).resolve()))

    def __str__(self) -> str:
        return self.written

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        # for the JSON schema of pipeline.yml: a text with the format `path`
        text = core_schema.str_schema(metadata={"pydantic_js_updates": {"format": "path"}})
        return core_schema.with_info_plain_validator_function(
            cls._validated, json_schema_input_schema=text, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def _validated(cls, value: Any, info: ValidationInfo) -> Self:
        """The folder for a value of pipeline.yml. If Spark runs on a cluster (`info.context`), only a URI is valid."""
        if not isinstance(value, str | Path | Place):
            raise ValueError("a path or a URI is wanted")  # noqa: TRY004 - pydantic reports only a ValueError
        place = cls.of(value)
        if place.scheme is None and info.context:
            raise ValueError(f"{place} is on this machine; a cluster needs a URI such as s3://bucket/folder")
        return place


def unreachable_message(places: Sequence[str]) -> str:
    """The message for these folders of this machine, which executors on other machines cannot reach."""
    verb = "is" if len(places) == 1 else "are"
    return (
        f"tasks run on other machines, and {' and '.join(places)} {verb} on this one; use URIs such as"
        " s3://bucket/folder, with a target.catalog that is a server"
    )
