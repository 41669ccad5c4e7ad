"""What all parts of pipeline.yml have in common: they never change, and have no unknown keys."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A part of pipeline.yml."""

    model_config = ConfigDict(frozen=True, extra="forbid")
