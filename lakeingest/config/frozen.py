"""The base class of the parts of pipeline.yml. Their values never change, and an unknown key is a mistake."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A part of pipeline.yml."""

    # a validator is built when it is first used: most parts are only validated within others
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
