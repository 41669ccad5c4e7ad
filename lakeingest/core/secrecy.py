"""When a secret leaves this process: to a proven server, or inside the answer to a challenge, which hides the secret.

A server is proven by a certificate that was verified, or by a public key that was pinned. There is one exception, as in
MySQL's own client: on the loopback address the password is sent over TLS that does not prove the server, because only a
process of the same machine can answer on that address.
"""

from enum import Enum


class Line(Enum):
    """How a connection is protected, and whether its server is proven."""

    PLAIN = "without TLS"
    ENCRYPTED = "over TLS that proves no server"
    PROVEN = "to a proven server"


class Demand(Enum):
    """A kind of answer that a server asks for."""

    CHALLENGE = "an answer that needs the password, but does not reveal it"
    EXCHANGE = "the password itself"  # SHA-2 plugins ask for it if the server has no hash of the password at hand
    CLEAR_TEXT = "the password in clear text"
    BROKEN = "an answer that reveals the password"  # mysql_old_password


class Answer(Enum):
    """How a demand is met."""

    CHALLENGE = 0
    AS_IT_IS = 1
    SEALED = 2  # encrypted with the server's public key, which the user has given


def answer(demand: Demand, line: Line, *, is_local: bool, has_key: bool, is_token: bool) -> Answer | None:
    """How to meet a demand; None: the secret must not leave this process.

    `is_local`: the server is on the loopback address. `has_key`: the user has given the server's public key, with which
    the password can be encrypted if there is no TLS. `is_token`: the secret is a token. A token is sent only to a
    proven server, or inside the answer to a challenge.
    """
    if demand is Demand.CHALLENGE:
        return Answer.CHALLENGE
    if demand is Demand.BROKEN:
        return None
    if line is Line.PROVEN:
        return Answer.AS_IT_IS
    if demand is Demand.CLEAR_TEXT or is_token:
        return None
    if line is Line.ENCRYPTED:
        return Answer.AS_IT_IS if is_local else None
    return Answer.SEALED if has_key else None  # without TLS
