"""Which single rows a failed expectation blames: without these rows, the table would pass."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakeingest.core.tables.keys import Key
from lakeingest.quality.gates import Outcome, evaluated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Whether a row fails one of these does not depend on other rows; uniqueness, order and distances from a mean do
_OF_ONE_ROW = frozenset(
    {
        "expect_column_values_to_be_between",
        "expect_column_values_to_be_in_set",
        "expect_column_values_to_be_json_parseable",
        "expect_column_values_to_be_null",
        "expect_column_values_to_match_json_schema",
        "expect_column_values_to_match_like_pattern",
        "expect_column_values_to_match_regex",
        "expect_column_values_to_match_regex_list",
        "expect_column_values_to_match_strftime_format",
        "expect_column_values_to_not_be_in_set",
        "expect_column_values_to_not_be_null",
        "expect_column_values_to_not_match_like_pattern",
        "expect_column_values_to_not_match_regex",
        "expect_column_values_to_not_match_regex_list",
        "expect_column_value_lengths_to_be_between",
        "expect_column_value_lengths_to_equal",
        "expect_column_pair_values_a_to_be_greater_than_b",
        "expect_column_pair_values_to_be_equal",
        "expect_column_pair_values_to_be_in_set",
        "expect_multicolumn_sum_to_equal",
        "expect_select_column_values_to_be_unique_within_record",
    }
)
Blamed = Mapping[Key, tuple[str, ...]]  # by key, the names of the expectations that its row fails


def blamed_rows(outcome: Outcome) -> int | None:
    """How many rows a failed expectation blames; None if it does not blame single rows.

    With `mostly`, some rows may fail, and nobody can say which of them should not.
    """
    kwargs = outcome.document["kwargs"]
    blames = outcome.document["type"] in _OF_ONE_ROW and kwargs.get("mostly") in {None, 1}
    return outcome.unexpected if blames and outcome.error is None and outcome.unexpected else None


def blame(
    name: str, rows: "DataFrame", key_texts: Collection[str], failures: Sequence[Outcome], *, ordered: bool
) -> Blamed | None:
    """The keys of all rows that these failed expectations blame; None if some of these keys are not known.

    Each of the expectations blames single rows. The columns `key_texts` of `rows` have the values of the key as texts.
    The returned keys have these texts or, if the key is `ordered`, integers. `name` is the title of the evaluation.
    """
    blamed: dict[Key, tuple[str, ...]] = {}
    for failure, details in zip(failures, evaluated(name, rows, key_texts, failures), strict=True):
        found = details.get("unexpected_index_list") or ()
        keys = {_key_of(row, key_texts, ordered=ordered) for row in found}
        if None in keys or len(keys) != failure.unexpected:  # a row without a key, or a key of two rows
            return None
        for key in sorted(key for key in keys if key is not None):
            blamed[key] = (*blamed.get(key, ()), failure.name)
    return blamed


def _key_of(row: Mapping[str, Any], key_texts: Collection[str], *, ordered: bool) -> Key | None:
    """The key of a row, from the texts in its columns `key_texts`; None if a text is missing."""
    texts = [row.get(name) for name in key_texts]
    if any(text is None for text in texts):
        return None
    return tuple(int(str(text)) if ordered else str(text) for text in texts)
