"""Which pipeline a copy belongs to: only runs of this pipeline are allowed to continue the copy.

A name does not identify a pipeline, because two pipelines may have the same name. So each state folder has a random id,
which moves with the folder and is lost with the folder. If the folder is lost, a new folder at the same path belongs to
the same pipeline, if the pipeline's name is the same.
"""

import json
from dataclasses import asdict, dataclass
from typing import Self

from lakeingest.errors import DAMAGED


@dataclass(frozen=True, slots=True)
class Owner:
    """A pipeline: its name, the id of its state folder ('' if there is none yet), and the folder's path and machine."""

    pipeline: str
    id: str
    state: str

    def to_text(self) -> str:
        """A text that `of_text` reads back."""
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Self:
        """The inverse of `to_text`. For any other text, an owner that is the same as no pipeline (`is_same`)."""
        try:
            doc = json.loads(text)
            return cls(str(doc["pipeline"]), str(doc["id"]), str(doc["state"]))
        except DAMAGED:
            return cls("?", "", "?")

    def is_same(self, other: "Owner") -> bool:
        """Whether both are the same pipeline: they have the same id, or the same name and state folder."""
        same_id = bool(self.id) and self.id == other.id
        same_place = (self.pipeline, self.state) == (other.pipeline, other.state)
        return same_id or same_place

    def __str__(self) -> str:
        return f"the pipeline {self.pipeline} with the state folder {self.state}"
