"""Approve: a person lets a table follow the DDL for whose approval the table waits. Each later DDL is approved anew."""

from lakeingest.commands.signal import chosen_tables
from lakeingest.config import Config
from lakeingest.core.copies.signals import agenda
from lakeingest.errors import UsageError
from lakeingest.files.file import state_of
from lakeingest.lake.formats import open_target
from lakeingest.spool.halts import halts
from lakeingest.spool.spool import Spool
from lakeingest.state.signals import SignalFolder


def waiting_ddl(config: Config, table: str) -> str:
    """The name of the DDL for which the table waits: the first DDL in the spool that nobody has approved.

    Raises UsageError if the table waits for no DDL.
    """
    [chosen] = chosen_tables(config, [table])
    spool = Spool.load(state_of(config) / "spool")
    staged = open_target(config).inspect(chosen)
    # a copy whose chunks are not all read does not follow DDL, so its table does not wait for an approval
    if spool is not None and staged is not None and staged.progress.splits.complete:
        signals = [document.signal for document in SignalFolder(state_of(config)).read()]
        approved = agenda(signals, [chosen], {}, {}).approved[chosen]  # approvals do not depend on the progress
        for halt in halts(spool, chosen, staged.progress.needed_from):
            if halt.ddl not in approved:
                return halt.ddl
    raise UsageError(
        f"{chosen} waits before no DDL that is not approved; `lakeingest status` says what a table waits for"
    )
