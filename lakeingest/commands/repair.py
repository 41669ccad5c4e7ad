"""Repair: the rows that `verify` found to differ are read again, and no others.

Before that, each difference is confirmed by a second comparison. A re-snapshot is exact while others write, so the
repair is exact, too.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lakeingest.commands.signal import ask
from lakeingest.commands.verify import TableVerification, Verifications, compared, verify
from lakeingest.config import Config
from lakeingest.core.checksum import Difference
from lakeingest.core.keys import Key
from lakeingest.core.schema import TableSchema
from lakeingest.core.signals import Action, Scope
from lakeingest.mysql.key_values import bound_of, values_of_texts
from lakeingest.mysql.source import Source
from lakeingest.pipeline.events import Observer, unobserved

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 10  # of a table, because each round names only a limited number of differences


def repair(
    config: Config, tables: Sequence[str] = (), spark: "SparkSession | None" = None, observe: Observer = unobserved
) -> Verifications:
    """Repair as `repaired` does, then raise the error of a table that could not be compared, with these results."""
    results = repaired(config, tables, spark, observe)
    results.raise_refused()
    return results


def repaired(
    config: Config, tables: Sequence[str] = (), spark: "SparkSession | None" = None, observe: Observer = unobserved
) -> Verifications:
    """Compare the tables, and repair those that differ. Returns the comparison after the repair.

    Its `repaired` are the differences that were repaired. The owner of the lease reads the rows again, or this process
    if nobody holds the lease. Raises the errors of `compared` and of a re-snapshot.
    """
    results = compared(config, tables, spark)
    return Verifications.of([_repaired(config, result, spark, observe) for result in results], results.refused)


def _repaired(
    config: Config, verified: TableVerification, spark: "SparkSession | None", observe: Observer
) -> TableVerification:
    """The table's verification after the repair: no difference is left, or none of those left could be repaired."""
    repaired: dict[Key, Difference] = {}
    for _ in range(ROUNDS):
        if not verified.differences:
            break
        # Step 1: compare again, so that only differences that last are repaired.
        differences = set(verified.differences)
        verified = _verified(config, verified, spark)
        confirmed = [difference for difference in verified.differences if difference in differences]
        if not confirmed:
            continue
        # Step 2: read the rows of these differences again.
        _read_again(config, verified, confirmed, spark, observe)
        # Step 3: compare, and stop if this round has repaired nothing.
        verified = _verified(config, verified, spark)
        keys_left = {difference.key for difference in verified.differences}
        repaired_now = {difference.key: difference for difference in confirmed if difference.key not in keys_left}
        repaired |= repaired_now
        if not repaired_now:
            break
    return replace(verified, repaired=tuple(repaired.values()))


def _verified(config: Config, verified: TableVerification, spark: "SparkSession | None") -> TableVerification:
    [result] = verify(config, [str(verified.table)], spark)
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
    keys = tuple({_bound(schema, difference.key): None for difference in differences})
    ask(
        config, Action.RESNAPSHOT, [str(verified.table)], scope=Scope(keys=keys), observe=observe, spark=spark
    ).raise_failure()


def _bound(schema: TableSchema, key: Key) -> Key:
    """The key of a difference, as a re-snapshot takes it. If only the server can order keys, its values are texts."""
    return key if schema.ordered else bound_of(schema, values_of_texts(schema, tuple(map(str, key))))
