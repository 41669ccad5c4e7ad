"""How Hypothesis builds the values of the core, so that a test can ask for `st.from_type(Splits)`."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from lakeingest.core.binlog.history import History
from lakeingest.core.binlog.position import FilePosition, GtidSet, Place, Position
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.splits import Split, Splits

UUIDS = (
    "00000000-0000-0000-0000-000000000001",
    "3e11fa47-71ca-11e1-9e33-c80aa9429562",
    "ffffffff-0000-0000-0000-0000000000ff",
)


def pytest_configure(config: pytest.Config) -> None:
    """All examples are drawn, unless the run names another profile."""
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("core")


def places() -> st.SearchStrategy[Place]:
    """Few enough that some are equal, around the file where the numbers gain a digit."""
    return st.builds(Place, st.integers(0, 2), st.integers(999_998, 1_000_001), st.integers(0, 300))


def gtid_sets() -> st.SearchStrategy[GtidSet]:
    """Several servers and tags, with gaps."""
    runs = st.tuples(st.integers(1, 30), st.integers(0, 4)).map(lambda run: (run[0], run[0] + run[1]))
    sources = st.tuples(st.sampled_from(UUIDS), st.sampled_from(["", "a", "bulk_load"]))
    return st.dictionaries(sources, st.lists(runs, max_size=4), max_size=4).map(GtidSet.of)


@st.composite
def key_ranges(draw: st.DrawFn) -> KeyRange:
    """Ranges of one to three columns, with and without bounds."""
    width = draw(st.integers(1, 3))
    keys = st.tuples(*[st.integers(-3, 3)] * width)
    lower, upper = sorted(draw(st.lists(keys, min_size=2, max_size=2, unique=True)))
    return KeyRange(draw(st.sampled_from([None, lower])), draw(st.sampled_from([None, upper])))


@st.composite
def finished(draw: st.DrawFn, keys: KeyRange) -> Split:
    """A split of these keys, read or merged."""
    if draw(st.booleans()):
        return Split(keys, merged_at=draw(places()))
    if draw(st.booleans()):
        return Split(keys, low=draw(gtid_sets()), high=draw(places()))
    low, high = sorted(draw(st.tuples(places(), places())))
    return Split(keys, low=low, high=high)


@st.composite
def tilings(draw: st.DrawFn) -> Splits:
    """The finished splits of a table, complete or not, over keys of one or two columns."""
    width = draw(st.integers(1, 2))
    keys = st.tuples(*[st.integers(-5, 5)] * width)
    bounds: list[tuple[int, ...] | None] = [None, *sorted(draw(st.sets(keys, max_size=6)))]
    if draw(st.booleans()):
        bounds.append(None)
    return Splits(tuple(draw(finished(KeyRange(bounds[i], bounds[i + 1]))) for i in range(len(bounds) - 1)))


def file_positions() -> st.SearchStrategy[FilePosition]:
    """Positions of files whose base name has a dot of its own, as a name may."""
    names = st.builds("{}.{:06d}".format, st.sampled_from(["binlog", "mysql-bin.a"]), st.integers(1, 1_000_001))
    return st.builds(FilePosition, names, st.integers(0, 2**63))


st.register_type_strategy(Place, places())
st.register_type_strategy(GtidSet, gtid_sets())
st.register_type_strategy(KeyRange, key_ranges())
st.register_type_strategy(Split, key_ranges().flatmap(finished))
st.register_type_strategy(Splits, tilings())
st.register_type_strategy(FilePosition, file_positions())
st.register_type_strategy(
    Position,
    st.builds(
        Position,
        st.sampled_from(UUIDS),
        st.integers(0, 3),
        file_positions(),
        st.none() | gtid_sets(),
        st.none() | st.from_type(History),
    ),
)
st.register_type_strategy(
    TableId, st.builds(TableId, st.sampled_from(["shop", "Läden"]), st.sampled_from(["orders", "a b", "x.y"]))
)
