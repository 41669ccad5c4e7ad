from itertools import product

import pytest

from lakeingest.core.secrecy import Answer, Demand, Line, answer

BOTH = (False, True)


Facts = dict[str, bool]


def cases(*demands: Demand, lines: tuple[Line, ...] = tuple(Line)) -> list[tuple[Demand, Line, Facts]]:
    """Every combination of these with place, key and kind of secret."""
    facts = [dict(zip(("is_local", "has_key", "is_token"), three, strict=True)) for three in product(BOTH, BOTH, BOTH)]
    return list(product(demands, lines, facts))


@pytest.mark.parametrize(("demand", "line", "facts"), cases(*Demand))
def test_a_secret_leaves_only_to_a_proven_server_or_hidden(demand: Demand, line: Line, facts: Facts) -> None:
    """The one exception is a password on the loopback address, over TLS, as MySQL's own client sends it."""
    found = answer(demand, line, **facts)
    if found is Answer.AS_IT_IS and line is not Line.PROVEN:
        assert (demand, line, facts["is_local"], facts["is_token"]) == (Demand.EXCHANGE, Line.ENCRYPTED, True, False)
    if found is Answer.SEALED:
        assert (demand, line, facts["has_key"], facts["is_token"]) == (Demand.EXCHANGE, Line.PLAIN, True, False)


@pytest.mark.parametrize(("demand", "line", "facts"), cases(Demand.CHALLENGE))
def test_a_challenge_is_always_answered(demand: Demand, line: Line, facts: Facts) -> None:
    """What is sent reveals nothing."""
    assert answer(demand, line, **facts) is Answer.CHALLENGE


@pytest.mark.parametrize(("demand", "line", "facts"), cases(Demand.BROKEN))
def test_a_broken_challenge_is_never_answered(demand: Demand, line: Line, facts: Facts) -> None:
    """Also not to a proven server: nobody needs it."""
    assert answer(demand, line, **facts) is None


@pytest.mark.parametrize(
    ("demand", "line", "facts"),
    cases(Demand.EXCHANGE, Demand.CLEAR_TEXT, lines=(Line.PROVEN,)),
)
def test_a_proven_server_gets_what_it_asks_for(demand: Demand, line: Line, facts: Facts) -> None:
    """Passwords and tokens."""
    assert answer(demand, line, **facts) is Answer.AS_IT_IS


def test_without_a_proof_a_password_leaves_in_two_ways() -> None:
    """To the loopback address over TLS, and encrypted with a key that the user has given."""
    local = answer(Demand.EXCHANGE, Line.ENCRYPTED, is_local=True, has_key=False, is_token=False)
    sealed = answer(Demand.EXCHANGE, Line.PLAIN, is_local=False, has_key=True, is_token=False)
    assert (local, sealed) == (Answer.AS_IT_IS, Answer.SEALED)
