"""The commit that lets readers see a commit of staging, its position and the form of its table."""

import json
from collections.abc import Mapping

from pyiceberg.table import Table, Transaction
from pyiceberg.table.update.snapshot import ManageSnapshots

from lakeingest.lake.iceberg.commits.creation import end_building
from lakeingest.lake.iceberg.commits.transaction import OneTransaction
from lakeingest.lake.iceberg.merges.marks import assert_staging
from lakeingest.lake.iceberg.tables.evolution import Form, evolve
from lakeingest.lake.iceberg.tables.expiry import limits
from lakeingest.lake.iceberg.tables.history import STATE, TAKEN, assert_unmoved
from lakeingest.lake.iceberg.tables.staged_schema import show_schema
from lakeingest.lake.marks import POSITION
from lakeingest.lake.target import Staged


def publication(loaded: Table, staged: Staged, form: Form, properties: Mapping[str, str]) -> Transaction:
    """The transaction that moves main to the commit `staged.version`, which need not be the last one on staging.

    The transaction gives the table this form and these properties, and stores the position of `staged` as a property.
    The catalog refuses the transaction if staging has moved since `loaded`, as by a hand-over to another pipeline.
    Raises as `assert_unmoved`, and StaleWriter as `end_building`.
    """
    assert_unmoved(loaded, staged)
    position = staged.progress.position
    position_text = "" if position is None else json.dumps(position.to_json())
    transaction = OneTransaction(loaded)
    transaction.set_properties({**limits(loaded.properties), POSITION: position_text, **properties})
    show_schema(transaction, staged.version)
    evolve(transaction, staged.progress.table, form)
    if TAKEN in loaded.properties:  # the first publish of a table that another tool made
        transaction.remove_properties(TAKEN)
    if STATE in loaded.properties:  # the first publish of a table under its own name
        end_building(transaction, staged.progress.table, loaded, staged.version)
    branches = ManageSnapshots(transaction=transaction).set_current_snapshot(snapshot_id=staged.version)
    assert_staging(branches, loaded.metadata).commit()  # into the transaction; the catalog asserts staging later
    return transaction
