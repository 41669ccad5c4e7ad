"""Adoptions of Hudi tables: a commit without files, of a new version, names the next owner.

Then a publish of the former owner is refused, because readers see another version than it was prepared for. Files that
it has begun to write are rolled back first, so that its commit cannot be completed. A first copy is adopted before
readers see it.
"""

import uuid

from lakeingest.core.ownership import Owner
from lakeingest.core.schema import TableId
from lakeingest.lake.hudi.commit import SCHEMA, Commit, roll_back
from lakeingest.lake.hudi.folder import TableFolder
from lakeingest.lake.hudi.lock import publishing
from lakeingest.lake.hudi.target import HudiTarget
from lakeingest.lake.hudi.timeline import PREFIX, VERSION, Instant, metadata_of, writes
from lakeingest.lake.marks import BASE
from lakeingest.lake.ownership import PIPELINE, without_copy
from lakeingest.lake.refusals import stale


class HudiAdoptions:
    """`lake.ownership.Adoptions` on Hudi tables."""

    def __init__(self, target: HudiTarget, owner: Owner) -> None:
        self._target, self._owner = target, owner

    def owner(self, table: TableId) -> Owner | None:
        """The owner that the commit names which readers see, or the claim on the first copy."""
        folder = self._folder(table)
        with self._target.storage_errors():
            published = folder.published()
            properties = folder.claimed() if published is None else published.properties
        if properties is None:
            raise without_copy(table)
        text = properties.get(PIPELINE)
        return None if text is None else Owner.of_text(text)

    def adopt(self, table: TableId) -> None:
        """Make this pipeline the owner.

        Raises ForeignWrite where someone else wrote to the table: its owner must take that back first.
        """
        folder = self._folder(table)
        with self._target.storage_errors(), publishing(table, folder.final):
            published = folder.published()
            folder.claim_for(self._owner)
            if published is not None:
                self._commit(folder, published)

    def _commit(self, folder: TableFolder, published: Instant) -> None:
        place = folder.place
        roll_back(place)  # first: a commit that the former owner has begun must not be completed after ours
        [last] = [file for _, begun, file in writes(place) if begun == published.time]
        with metadata_of(last) as metadata:
            schema = str(metadata["extraMetadata"][SCHEMA])
        marks = {
            **published.properties,
            PIPELINE: self._owner.to_text(),
            VERSION: str(uuid.uuid4().int >> 66),
            BASE: str(published.version),
        }
        properties = {SCHEMA: schema, **{PREFIX + name: value for name, value in marks.items()}}
        if not Commit.begin(place).complete("UPSERT", [], properties):
            raise stale(folder.table)

    def _folder(self, table: TableId) -> TableFolder:
        return self._target._folder_of(table)  # noqa: SLF001 - of the same package
