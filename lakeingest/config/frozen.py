"""The base of all parts of pipeline.yml: their values never change, and they have no unknown keys."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A part of pipeline.yml."""

    model_config = ConfigDict(frozen=True, extra="forbid")
