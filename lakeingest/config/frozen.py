"""The base class of the parts of pipeline.yml. Their values never change, and an unknown key is a mistake."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A part of pipeline.yml."""

    model_config = ConfigDict(frozen=True, extra="forbid")
