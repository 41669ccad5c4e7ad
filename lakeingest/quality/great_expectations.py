"""Access to Great Expectations, silenced. The library is imported only when needed: the import takes seconds."""

import functools
import logging
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.data_context.data_context.abstract_data_context import AbstractDataContext
    from great_expectations.datasource.fluent.interfaces import Batch
    from great_expectations.expectations.expectation import Expectation
    from pyspark.sql import DataFrame


def expectation(document: Mapping[str, Any]) -> "Expectation":
    """The expectation that a document `{type, kwargs, …}` defines.

    Raises ValueError with a message in one line if Great Expectations refuses the document.
    """
    _context()  # silences the library before the imports below
    from great_expectations.exceptions.exceptions import GreatExpectationsError
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    try:
        return ExpectationConfiguration(**document).to_domain_obj()
    except (GreatExpectationsError, TypeError, ValueError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def sql_of(parsed: "Expectation") -> list[str]:
    """The names of an expectation's parameters that are SQL for Spark: queries, and a condition on rows in SQL."""
    queries = [name for name in parsed.__fields__ if name.endswith("_query")]
    return queries + (["row_condition"] if _is_sql(getattr(parsed, "row_condition", None)) else [])


def is_about_rows(parsed: "Expectation") -> bool:
    """Whether an expectation is about single rows, so that it can also be asked of a sample of the rows."""
    from great_expectations.expectations.expectation import (
        ColumnMapExpectation,
        ColumnPairMapExpectation,
        MulticolumnMapExpectation,
    )

    return isinstance(parsed, ColumnMapExpectation | ColumnPairMapExpectation | MulticolumnMapExpectation)


def _is_sql(condition: Any) -> bool:
    """Whether a condition, or a part of it, is passed to Spark as SQL."""
    from great_expectations.expectations.row_conditions import PassThroughCondition

    parts = getattr(condition, "conditions", ())
    return isinstance(condition, str | PassThroughCondition) or any(map(_is_sql, parts))


def batch(rows: "DataFrame") -> "Batch":
    """The rows as a batch to validate. The batch is not cached, so each query reads the rows again."""
    return _batch_definition(rows.sparkSession.sparkContext.applicationId).get_batch({"dataframe": rows})


@functools.cache
def _context() -> "AbstractDataContext":
    """The context of this process: it is kept in memory, prints nothing, and uses no network."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the import of the library warns
        import great_expectations
        from great_expectations.data_context.types.base import (
            DataContextConfig,
            InMemoryStoreBackendDefaults,
            ProgressBarsConfig,
        )

        logging.captureWarnings(False)  # the import of the library captures the warnings of the whole process
    logging.getLogger("great_expectations").setLevel(logging.CRITICAL)  # the results have the same messages
    settings = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        analytics_enabled=False,
        progress_bars=ProgressBarsConfig(globally=False),
    )
    return great_expectations.get_context(mode="ephemeral", project_config=settings)


@functools.lru_cache(maxsize=1)
def _batch_definition(application: str) -> "BatchDefinition[Any]":
    """The batch definition for a Spark application. Each application needs its own, which keeps the Spark session."""
    # not persisted: with caching, two million rows take five times as long
    source = _context().data_sources.add_spark(application, persist=False)
    return source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all")
