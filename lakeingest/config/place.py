"""Places of files: a folder of this machine, or one of an object store."""

import re
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
    """A folder: `written` is its path, or its URI where it is in an object store, such as s3://bucket/folder."""

    written: str

    @classmethod
    def of(cls, given: "str | Path | Place") -> Self:
        """The place that a user has written: a path, or a URI."""
        text = _LOCAL.sub("/", str(given))
        return cls(text.rstrip("/") if _REMOTE.match(text) else str(Path(text)))

    @property
    def scheme(self) -> str | None:
        """The kind of object store, such as s3; None for a folder of this machine."""
        found = _REMOTE.match(self.written)
        return found and found[1]

    @property
    def path(self) -> Path:
        """The folder of this machine."""
        if self.scheme is not None:
            raise ValueError(f"{self} is no folder of this machine")
        return Path(self.written)

    @property
    def uri(self) -> str:
        """The place as a URI."""
        return self.path.as_uri() if self.scheme is None else self.written

    @property
    def hadoop(self) -> str:
        """The place as Spark's own readers and writers name it: a path, or a URI with the scheme of Hadoop's client."""
        return re.sub(r"^s3:", "s3a:", self.written)

    def __truediv__(self, name: str) -> Self:
        return type(self)(joined(self.written, name))

    def below(self, folder: Path) -> Self:
        """The place; a relative path is relative to the folder."""
        return self if self.scheme is not None else type(self)(str((folder / self.path).resolve()))

    def __str__(self) -> str:
        return self.written

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.str_schema(metadata={"pydantic_js_updates": {"format": "path"}})
        return core_schema.with_info_plain_validator_function(
            cls._validated, json_schema_input_schema=text, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def _validated(cls, given: Any, info: ValidationInfo) -> Self:
        """With a true validation context, which is for Spark on a cluster, only a URI is valid."""
        if not isinstance(given, str | Path | Place):
            raise ValueError("a path or a URI is wanted")  # noqa: TRY004 - pydantic reports only a ValueError
        place = cls.of(given)
        if place.scheme is None and info.context:
            raise ValueError(f"{place} is on this machine; a cluster needs a URI such as s3://bucket/folder")
        return place
