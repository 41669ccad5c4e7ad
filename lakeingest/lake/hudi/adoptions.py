"""Adoption of a Hudi table: a commit without files names this pipeline as the owner.

The commit has a new version. So a later publish of the former owner is refused: it was prepared for the old version. A
publish that the former owner has begun is rolled back before the adoption, and cannot be completed afterwards. A copy
before its first publish has no commit; its claim file gets the new owner.
"""

import uuid

from lakeingest.core.copies.ownership import Owner
from lakeingest.core.tables.schema import TableId
from lakeingest.lake.hudi.commit import SCHEMA, Commit, roll_back
from lakeingest.lake.hudi.folder import TableFolder
from lakeingest.lake.hudi.lock import publish_lock
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
        """The owner that the visible commit names; before the first publish, the owner in the claim file.

        None: the commit names no owner. Raises UsageError if the table has no copy.
        """
        folder = self._folder(table)
        with self._target.storage_errors():
            published = folder.published()
            properties = folder.claimed() if published is None else published.properties
        if properties is None:
            raise without_copy(table)
        text = properties.get(PIPELINE)
        return None if text is None else Owner.of_text(text)

    def adopt(self, table: TableId) -> None:
        """Make this pipeline the owner: in the claim file and, if the table is published, by a commit.

        Clusterings of others are taken back first.

        Raises ForeignWrite if someone else wrote to the table: the former owner must roll that write back first. Raises
        StaleWriter if another run publishes at the same time, or has rolled back our commit.
        """
        folder = self._folder(table)
        with self._target.storage_errors(), publish_lock(table, folder.final):
            folder.take_back_clusterings()
            published = folder.published()
            folder.claim_for(self._owner)
            if published is not None:
                self._commit(folder, published)

    def _commit(self, folder: TableFolder, published: Instant) -> None:
        """Write a commit without files: the properties of the `published` commit, with the new owner and a new version.

        Raises StaleWriter if another run has rolled back the new commit.
        """
        path = folder.current
        roll_back(path)  # first: a commit that the former owner has begun must not be completed after ours
        [published_file] = [file for _, begun, file in writes(path) if begun == published.time]
        with metadata_of(published_file) as metadata:
            schema = str(metadata["extraMetadata"][SCHEMA])
        properties = {
            **published.properties,
            PIPELINE: self._owner.to_text(),
            VERSION: str(uuid.uuid4().int >> 66),  # 62 bits, as staging chooses its versions
            BASE: str(published.version),
        }
        metadata_properties = {SCHEMA: schema, **{PREFIX + name: value for name, value in properties.items()}}
        if not Commit.begin(path).complete("UPSERT", [], metadata_properties):
            raise stale(folder.table)

    def _folder(self, table: TableId) -> TableFolder:
        return self._target._folder_of(table)  # noqa: SLF001 - of the same package
