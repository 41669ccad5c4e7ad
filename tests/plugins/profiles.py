"""How much random tests try: Hypothesis's profiles, which tests with random walks of their own follow.

`core` is for `tests/core`; `quick`, by `--hypothesis-profile quick`, is for whoever waits for the answer.
"""

from hypothesis import HealthCheck, settings

EXAMPLES, QUICK_EXAMPLES = 60, 6
CORE = settings(deadline=None, database=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("core", CORE)
settings.register_profile("quick", CORE, max_examples=QUICK_EXAMPLES)


def walks(count: int) -> int:
    """So many walks or other tries, or as small a part of them as the profile in force draws of the examples."""
    chosen = settings.default
    assert chosen is not None
    return max(1, count * min(chosen.max_examples, EXAMPLES) // EXAMPLES)


def halves(count: int, least: int | None = None) -> tuple[range, range]:
    """The seeds of so many walks: those of every run, then those of the slices; each a tenth at least, or `least`."""
    tried = walks(count)
    middle = max(tried // 2, least or count // 10)
    return range(middle), range(middle, max(tried, 2 * middle))
