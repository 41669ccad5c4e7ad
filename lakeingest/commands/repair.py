"""Repair: the rows that `verify` found to differ are read again, and nothing else.

Each difference is read a second time before. A re-snapshot is right beside writers, so the repair is, too.
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

ROUNDS = 10  # of a table: each names so many differences at most


def repair(
    config: Config, tables: Sequence[str] = (), spark: "SparkSession | None" = None, observe: Observer = unobserved
) -> Verifications:
    """As `repaired`; where a table could not be compared, its error is raised, with these results as its `result`."""
    results = repaired(config, tables, spark, observe)
    results.raise_refused()
    return results


def repaired(
    config: Config, tables: Sequence[str] = (), spark: "SparkSession | None" = None, observe: Observer = unobserved
) -> Verifications:
    """Compare the tables, and repair those that differ; the result is that of the comparison after the repair.

    Its `repaired` are the differences that were repaired. Errors are those of `compared` and of a re-snapshot; each
    table's rows are read again by the owner of the lease, or by this process where nobody holds it.
    """
    found = compared(config, tables, spark)
    return Verifications.of([_repaired(config, one, spark, observe) for one in found], found.refused)


def _repaired(
    config: Config, verified: TableVerification, spark: "SparkSession | None", observe: Observer
) -> TableVerification:
    """The table's verification once no difference is left, or none can be repaired."""
    repaired: dict[Key, Difference] = {}
    for _ in range(ROUNDS):
        if not verified.differences:
            break
        again = _verified(config, verified, spark)
        known = set(verified.differences)
        confirmed = [difference for difference in again.differences if difference in known]
        if confirmed:
            _read_again(config, verified, confirmed, spark, observe)
            again = _verified(config, verified, spark)
        left = {difference.key for difference in again.differences}
        repaired |= {difference.key: difference for difference in confirmed if difference.key not in left}
        if confirmed and left >= {difference.key for difference in confirmed}:
            verified = again
            break
        verified = again
    return replace(verified, repaired=tuple(repaired.values()))


def _verified(config: Config, verified: TableVerification, spark: "SparkSession | None") -> TableVerification:
    [found] = verify(config, [str(verified.table)], spark)
    return found


def _read_again(
    config: Config,
    verified: TableVerification,
    differences: Sequence[Difference],
    spark: "SparkSession | None",
    observe: Observer,
) -> None:
    with Source.open(config.source) as source:
        schema = source.schema(verified.table, config.tables.of(verified.table).choices)
    keys = tuple({_bound(schema, difference.key): None for difference in differences})
    ask(
        config, Action.RESNAPSHOT, [str(verified.table)], scope=Scope(keys=keys), observe=observe, spark=spark
    ).raise_failure()


def _bound(schema: TableSchema, key: Key) -> Key:
    """The key of a difference as a bound; where only the server knows its order, it has the values as texts."""
    return key if schema.ordered else bound_of(schema, values_of_texts(schema, tuple(map(str, key))))
