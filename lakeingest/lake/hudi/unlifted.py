"""What copies in Hudi cannot do yet: follow the DDL of their tables."""

from collections.abc import Sequence

from lakeingest.core.lift import Lift
from lakeingest.core.progress import Progress
from lakeingest.errors import SchemaChanged
from lakeingest.lake.target import Rewriter, Staged


class Unlifted:
    """The part of a target that lifts rows to the next definition of their table."""

    def rewriters(self, staged: Staged, lift: Lift) -> Sequence[Rewriter]:
        """As `lift`."""
        self.lift(staged, lift, staged.progress, ())
        return ()

    def lift(self, staged: Staged, lift: Lift, progress: Progress, _rewritten: Sequence[bytes]) -> Staged:
        """SchemaChanged: not built yet. The pipeline does not ask for it (`config.formats`)."""
        raise SchemaChanged(
            f"{progress.table}: DDL changed its columns from {', '.join(lift.before.names)}, which a copy in Hudi"
            f" cannot follow yet from version {staged.version} on; copy the table again"
        )
