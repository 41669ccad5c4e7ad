"""Which pipeline a copy belongs to, and whether another run may go on with it.

A name does not identify a pipeline, because two pipelines may have the same name. So each state folder has a random
id, which moves with it and is lost with it. A new folder at the same place belongs to the same pipeline.
"""

import json
from dataclasses import asdict, dataclass
from typing import Self

from lakeingest.errors import DAMAGED


@dataclass(frozen=True, slots=True)
class Owner:
    """A pipeline: its name, the id of its state folder ('': it has no id yet), and that folder's place and machine."""

    pipeline: str
    id: str
    state: str

    def to_text(self) -> str:
        """A text that `of_text` reads back."""
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Self:
        """The inverse of `to_text`. Any other text gives an owner that is the same as no pipeline."""
        try:
            doc = json.loads(text)
            return cls(str(doc["pipeline"]), str(doc["id"]), str(doc["state"]))
        except DAMAGED:
            return cls("?", "", "?")

    def is_same(self, other: "Owner") -> bool:
        """Whether both are one pipeline."""
        is_known = bool(self.id) and self.id == other.id
        return is_known or (self.pipeline, self.state) == (other.pipeline, other.state)

    def __str__(self) -> str:
        return f"the pipeline {self.pipeline} with the state folder {self.state}"
