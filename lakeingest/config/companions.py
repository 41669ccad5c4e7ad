"""Companions of copies (`core.companions.companion`): the keys of pipeline.yml that ask for them, and their options.

These options are fixed: no pattern of `tables.options` applies to companions.
"""

from lakeingest.config.tables import TableOptions
from lakeingest.core.companions.history_table import HISTORY, IS_CURRENT
from lakeingest.core.companions.log_columns import LOGGED_AT
from lakeingest.core.tables.schema import TableId

CHANGELOG_KEY, HISTORY_KEY, TRANSACTIONS_KEY = "changelog.table", "history", "changelog.transactions"
# versions that have ended are in files of their own, so that whoever asks for the current ones reads no others
_OF_HISTORIES = TableOptions(partition_by=(IS_CURRENT,))
_OF_LOGS = TableOptions(partition_by=(f"day({LOGGED_AT})",))  # so that rows are removed by whole days


def companion_options(companion: TableId) -> TableOptions:
    """The options of a companion of this name, or of the list of transactions."""
    return _OF_HISTORIES if companion.name.endswith(f"__{HISTORY}") else _OF_LOGS


def plain_options(_companion: TableId) -> TableOptions:
    """The options of a companion on Hudi: no partitions, because the row of a version that ends would change files."""
    return TableOptions()
