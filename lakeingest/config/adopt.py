"""How a table that another tool made becomes a copy: `tables.options.*.adopt`, for `tables.startup: adopt`."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Adopt(BaseModel):
    """What a person says about a foreign table.

    `stopped`: the tool that wrote the table, in the person's own words. Whoever sets it says that the tool has stopped
    writing the table. `drop`: patterns of the columns that only the tool has, and that the copy is not to have.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    stopped: Annotated[str, Field(min_length=1)] | None = None
    drop: tuple[str, ...] = ()
