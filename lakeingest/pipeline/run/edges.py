"""The edges of a run, as one frozen value: the source, the lake, the `state` folder, Spark, and the observer."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeingest.config import Config
from lakeingest.core.proofs.audit import Cost
from lakeingest.core.proofs.witness import Looked
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.files.file import File
from lakeingest.lake.target import Target
from lakeingest.pipeline.events import Observer
from lakeingest.pipeline.run.executors import Executors
from lakeingest.pipeline.run.joint_publishes import JointPublishes
from lakeingest.pipeline.run.ledger import Results
from lakeingest.pipeline.run.profile import Profile
from lakeingest.pipeline.run.quiet_tables import QuietTables
from lakeingest.pipeline.run.tally import Tally
from lakeingest.pipeline.run.throttle import Throttle
from lakeingest.pipeline.run.witnessing import Witness
from lakeingest.state.evidence import Evidence
from lakeingest.state.lease import Lease
from lakeingest.state.stopped import StoppedTables

if TYPE_CHECKING:
    from lakeingest.mysql.binlog_source import BinlogSource  # numba: it takes a second to import


@dataclass(frozen=True, slots=True)
class Edges:
    """The ports and values of a stage, apart from its table, which is a `TableRun`.

    A stage commits to the target through `committing`, and writes documents of the state through `writing`: both assert
    that the lease is held. The spool and the signals assert this inside each of their writes.
    `began`: when the run began, by the monotonic clock. `results`: what gates have found, for the ledger. `tally`: what
    merges have written. `unusual`: by table, what is unusual about its writes. `audit_costs`: by table, the cost of the
    run's audits. `joint`: what is known about publishes of several tables at once.
    """

    config: Config
    source: "BinlogSource"
    target: Target
    state: File
    quiet: QuietTables
    stopped: StoppedTables
    evidence: Evidence
    lease: Lease
    executors: Executors
    throttle: Throttle
    observe: Observer
    witness: Witness
    profile: Profile = field(default_factory=Profile)
    began: float = field(default_factory=time.monotonic)
    results: Results = field(default_factory=Results)
    tally: Tally = field(default_factory=Tally)
    unusual: dict[TableId, str] = field(default_factory=dict)
    audit_costs: defaultdict[TableId, Cost] = field(default_factory=lambda: defaultdict(Cost))
    joint: JointPublishes = field(default_factory=JointPublishes)

    @property
    def committing(self) -> Target:
        """The target, for a commit that is made right now. Raises LeaseLost if another run took over."""
        self.lease.assert_held()
        return self.target

    @property
    def writing(self) -> File:
        """The state folder, for a document that is written right now. Raises LeaseLost if another run took over."""
        self.lease.assert_held()
        return self.state

    def note_looks(self, decoder: str, schemas: Mapping[TableId, TableSchema], looked: Sequence[Looked]) -> None:
        """Note in the state folder what second decoders have compared of tables with these schemas.

        `decoder`: the server's version, and what was decoded (`core.proofs.witness.Met.rows`).
        """
        cpu_elsewhere, _ = self.profile.elsewhere
        self.witness.note(decoder, schemas, looked, cpu_elsewhere)
        self.witness.store(self.writing, now=any(look.rows or look.unread for look in looked))
