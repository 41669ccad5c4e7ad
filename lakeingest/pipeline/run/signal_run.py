"""The signals within one run: their documents, and the re-snapshots that the run has begun for them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeingest.core.copies.progress import Progress
from lakeingest.core.copies.signals import Request
from lakeingest.core.tables.schema import TableId
from lakeingest.state.signals import SignalDocument, SignalFolder


@dataclass(slots=True)
class SignalRun:
    """The signals of a run, which holds the lease.

    `documents`: the documents that were read last, by number.
    `visible`: by table, the progress that readers see, as far as this run has seen it.
    `waiting`: by table, the signals in `documents` that are answered if a copy begins now.
    `begun`: by table, the re-snapshot that is being read, with the signals that it answers.
    `tries`: by signal, how often a retryable error has interrupted its re-snapshot.
    """

    folder: SignalFolder
    documents: dict[int, SignalDocument] = field(default_factory=dict, init=False)
    visible: dict[TableId, Progress] = field(default_factory=dict, init=False)
    waiting: Mapping[TableId, tuple[int, ...]] = field(default_factory=dict, init=False)
    begun: dict[TableId, Request] = field(default_factory=dict, init=False)
    tries: dict[int, int] = field(default_factory=dict, init=False)
