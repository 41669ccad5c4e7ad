"""Repair: rows that differ between source and copy are read again, and no other rows.

`verify` finds the differences. A second comparison confirms them, then a re-snapshot reads the rows again that differ
in both comparisons. A re-snapshot is exact even while applications write, and so is the repair.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lakeingest.commands.extent import WHOLE, Extent
from lakeingest.commands.signal import ask
from lakeingest.commands.verification import TableVerification, Verifications
from lakeingest.commands.verify import compare_tables, verify
from lakeingest.config import Config
from lakeingest.core.copies.signals import Action
from lakeingest.core.proofs.checksum import Difference
from lakeingest.core.tables.keys import Key
from lakeingest.core.waves.scope import Scope
from lakeingest.errors import SourceMoved
from lakeingest.mysql.key_values import key_of_difference
from lakeingest.mysql.source import Source
from lakeingest.pipeline.events import Observer, unobserved

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 10  # the most rounds of one table; a comparison names a limited number of keys, so one round may not be enough


def repair(
    config: Config,
    tables: Sequence[str] = (),
    spark: "SparkSession | None" = None,
    observe: Observer = unobserved,
    extent: Extent = WHOLE,
) -> Verifications:
    """Repair as `repair_tables` does, then raise the most serious error of the tables that could not be compared.

    The `result` of this error has the comparisons of the other tables.
    """
    results = repair_tables(config, tables, spark, observe, extent)
    results.raise_refused()
    return results


def repair_tables(
    config: Config,
    tables: Sequence[str] = (),
    spark: "SparkSession | None" = None,
    observe: Observer = unobserved,
    extent: Extent = WHOLE,
) -> Verifications:
    """Compare the tables, and repair those that differ. Returns the comparison after the repair.

    `extent` says how much of each table is compared; only differences in this part are repaired. The comparison after
    the repair is of the same chunks as the first one, and its time is not limited.

    In each TableVerification, `repaired` has the differences that were repaired. The owner of the lease reads the rows
    again; if nobody holds the lease, this process does. Raises the errors of `compare_tables` and of a re-snapshot.
    """
    results = compare_tables(config, tables, spark, extent, observe=observe)
    repaired, refused = list[TableVerification](), dict(results.refused)
    for result in results:
        try:
            repaired.append(_repair_table(config, result, spark, observe, extent))
        except SourceMoved as error:  # the other tables go on
            refused[result.table] = error
    return Verifications.of(repaired, refused)


def _repair_table(
    config: Config,
    verified: TableVerification,
    spark: "SparkSession | None",
    observe: Observer,
    extent: Extent,
) -> TableVerification:
    """Repair a table in up to ROUNDS rounds. Returns the last comparison.

    No more round begins if no difference is left, or if a round has read rows again and repaired none of them.
    """
    repaired: dict[Key, Difference] = {}
    for _ in range(ROUNDS):
        if not verified.differences:
            break
        # Step 1: compare again. Only differences that both comparisons found are repaired.
        differences_before = set(verified.differences)
        verified = _verify_again(config, verified, spark, extent)
        confirmed = [difference for difference in verified.differences if difference in differences_before]
        if not confirmed:
            continue  # perhaps the next round confirms the differences that only the second comparison found
        # Step 2: read the rows of these differences again.
        _read_again(config, verified, confirmed, spark, observe)
        # Step 3: compare, and stop if this round has repaired nothing.
        verified = _verify_again(config, verified, spark, extent)
        keys_left = {difference.key for difference in verified.differences}
        repaired_now = {difference.key: difference for difference in confirmed if difference.key not in keys_left}
        repaired |= repaired_now
        if not repaired_now:
            break
    return replace(verified, repaired=tuple(repaired.values()))


def _verify_again(
    config: Config, verified: TableVerification, spark: "SparkSession | None", extent: Extent
) -> TableVerification:
    """Compare the table of `verified` once more: the same chunks, if they were drawn by chance.

    Raises the error if the table cannot be compared.
    """
    plans = {} if extent.seed is None or verified.plan is None else {verified.table: verified.plan}
    [result] = verify(config, [str(verified.table)], spark, extent, plans)
    return result


def _read_again(
    config: Config,
    verified: TableVerification,
    differences: Sequence[Difference],
    spark: "SparkSession | None",
    observe: Observer,
) -> None:
    """Ask for a re-snapshot of the keys of these differences, and wait until it has ended."""
    with Source.open(config.source) as source:
        schema = source.schema(verified.table, config.tables.of(verified.table).choices)
    keys = tuple(dict.fromkeys(key_of_difference(schema, difference.key) for difference in differences))
    ask(
        config, Action.RESNAPSHOT, [str(verified.table)], scope=Scope(keys=keys), observe=observe, spark=spark
    ).raise_failure()
