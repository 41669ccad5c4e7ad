import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from lakeingest.config import Source
from lakeingest.errors import LakeIngestError, OperatorNeeded, ServerUnproven
from lakeingest.mysql.connection import connect
from tests.security.certificates import Authority
from tests.security.fake_server import FULL, OK, SALT, FakeServer, Session, Talk, fake_server, switch

CANARY = "kanari-Geheim$%ü"
SECRET = CANARY.encode()
KEY = rsa.generate_private_key(65537, 2048)
PEM = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def source_of(server: FakeServer, **tls: Any) -> Source:
    """A server as pipeline.yml names it, with a canary for the password."""
    account = {"host": server.host, "port": server.port, "user": "lake", "password": CANARY}
    return Source.model_validate(account | {"tls": tls})


def ended(server: FakeServer, **tls: Any) -> LakeIngestError | None:
    """What a connection ends with; None where the login went through, after which this server has nothing to say."""
    found = None
    try:
        with connect(source_of(server, **tls)):
            pass
    except LakeIngestError as error:
        found = error
    assert CANARY not in str(found)
    return found


def then(*answers: bytes) -> Talk:
    """Greet, answer each packet of the login, and say OK to whatever comes then."""

    def talk(session: Session) -> None:
        session.greet()
        for number, one in enumerate(answers):
            if number:
                session.receive()
            session.send(one)
        while session.receive()[:1] != b"\x01":
            session.send(OK)

    return talk


full = then(FULL, OK)
clear, dialog, old = then(switch("mysql_clear_password"), OK), then(switch("dialog"), OK), then(b"\xfe")
sha256, native = then(switch("sha256_password"), OK), then(switch("mysql_native_password"), OK)


def fast_login(session: Session) -> None:
    """The server has a hash of the password at hand."""
    session.log_in()
    while session.receive()[:1] != b"\x01":
        session.send(OK)


DEMANDS = {"full": full, "clear": clear, "dialog": dialog, "old": old, "sha256": sha256}


@pytest.mark.parametrize("demand", DEMANDS)
def test_an_impostor_gets_nothing_by_default(demand: str, impostor: Path) -> None:
    """Not even the user's name: its certificate is of no authority that the system knows."""
    with fake_server(DEMANDS[demand], impostor) as server:
        error = ended(server)
    assert isinstance(error, ServerUnproven)
    assert error.exit_code == 3
    assert SECRET not in server.heard
    assert b"lake" not in server.heard


def test_the_error_has_the_pin_and_the_ways_out(impostor: Path) -> None:
    """Whoever compared the pin with the server's own sets it, and the server is proven."""
    with fake_server(full, impostor) as server:
        error = ended(server)
        found = re.search(r"sha256:[A-Za-z0-9+/]{43}=", str(error))
        assert found is not None
        assert all(f"source.tls.{way}" in str(error) for way in ("ca", "pin", "mode: required"))
        assert SECRET not in server.heard
        assert ended(server, pin=found[0]) is None
    assert SECRET in server.heard


def test_a_server_with_another_pin_gets_nothing(impostor: Path, authority: Authority) -> None:
    """The pins of several servers may be given; one of them has to be there."""
    with fake_server(full, authority.server("other", "127.0.0.2")) as other:
        known = re.findall(r"sha256:\S{44}", str(ended(other)))[0].rstrip(".")
    with fake_server(full, impostor) as server:
        error = ended(server, pin=known)
        assert isinstance(error, ServerUnproven)
        own = re.findall(r"sha256:[A-Za-z0-9+/]{43}=", str(error))[0]
        assert own != known
        assert SECRET not in server.heard
        assert b"lake" not in server.heard
        assert ended(server, pin=[known, own]) is None


@pytest.mark.parametrize("mode", [None, "verify_identity", "verify_ca"])
@pytest.mark.parametrize("shown", ["good", "wrong host", "expired", "impostor"])
def test_a_certificate_is_verified(mode: str | None, shown: str, authority: Authority, impostor: Path) -> None:
    """An authority without a mode means verify_identity; verify_ca takes any server of the authority."""
    address, days = ("127.0.0.9" if shown == "wrong host" else "127.0.0.2"), (-1 if shown == "expired" else 5)
    certificate = impostor if shown == "impostor" else authority.server("server", address, days)
    with fake_server(full, certificate) as server:
        error = ended(server, **{"ca": str(authority.ca)} | ({} if mode is None else {"mode": mode}))
    is_good = shown == "good" or (shown == "wrong host" and mode == "verify_ca")
    assert (error is None) is is_good, error
    assert (SECRET in server.heard) is is_good
    assert is_good or isinstance(error, ServerUnproven)


@pytest.mark.parametrize("demand", DEMANDS)
@pytest.mark.parametrize("mode", ["required", "preferred"])
def test_whoever_proves_nothing_gets_no_password(demand: str, mode: str, impostor: Path) -> None:
    """With `required` or without TLS, chosen by hand: the password itself stays here."""
    with_tls = mode == "required"
    with fake_server(DEMANDS[demand], impostor if with_tls else None) as server:
        error = ended(server, mode=mode)
    assert isinstance(error, ServerUnproven), error
    assert "does not get it" in str(error)
    assert ("sha256:" in str(error)) is (with_tls and demand != "old")
    assert SECRET not in server.heard


@pytest.mark.parametrize("login", [fast_login, native])
@pytest.mark.parametrize("mode", ["required", "preferred", "disabled"])
def test_a_challenge_is_answered_to_anybody(login: Talk, mode: str, impostor: Path) -> None:
    """It reveals nothing, so modes that are chosen by hand work where the server needs no more."""
    with fake_server(login, impostor) as server:
        assert ended(server, mode=mode) is None
    assert SECRET not in server.heard
    assert b"lake" in server.heard


def test_required_does_not_fall_back_to_plain_text() -> None:
    """A server, or someone in between, that offers no TLS gets nothing."""
    with fake_server(fast_login) as server:
        for tls in ({}, {"mode": "required"}, {"mode": "verify_ca"}):
            assert isinstance(ended(server, **tls), ServerUnproven)
    assert b"lake" not in server.heard


def stealing(found: list[bytes]) -> Talk:
    """A server that offers a key of its own, as one without TLS does to a client that asks for it."""

    def talk(session: Session) -> None:
        session.greet()
        session.send(FULL)
        sent = session.receive()
        if sent == b"\x02":
            session.send(b"\x01" + PEM)
            sent = session.receive()
        found.append(sent)
        with suppress(ValueError):  # sealed for somebody else
            found.append(unsealed(sent))
        session.send(OK)
        while session.receive()[:1] != b"\x01":
            session.send(OK)

    return talk


def unsealed(sent: bytes) -> bytes:
    """The password that was encrypted with our key."""
    sha1 = hashes.SHA1()  # noqa: S303 - as MySQL's protocol has it
    opened = KEY.decrypt(sent, padding.OAEP(padding.MGF1(sha1), sha1, None))
    return bytes(a ^ b for a, b in zip(opened, SALT * 9, strict=False)).rstrip(b"\0")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_a_key_that_the_server_offers_is_not_used(host: str) -> None:
    """Nor on the loopback address, as with MySQL's own client: only a key that the user has given."""
    found: list[bytes] = []
    with fake_server(stealing(found), host=host) as server:
        error = ended(server, mode="preferred")
    assert isinstance(error, ServerUnproven)
    assert "source.tls.server_public_key" in str(error)
    assert found == []


@pytest.mark.parametrize("given", ["the server's key", "another key"])
def test_a_given_key_seals_the_password(given: str, tmp_path: Path) -> None:
    """Without TLS, only who has the private key reads it."""
    is_right = given == "the server's key"
    other = rsa.generate_private_key(65537, 2048).public_key()
    pem = PEM if is_right else other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key.pem").write_bytes(pem)
    found: list[bytes] = []
    with fake_server(stealing(found)) as server:
        error = ended(server, mode="disabled", server_public_key=str(tmp_path / "key.pem"))
    assert error is None  # this server lets in whoever sends anything
    assert (SECRET in found) is is_right
    assert SECRET not in server.heard


def test_on_the_loopback_address_tls_need_not_prove_anything(impostor: Path) -> None:
    """As with MySQL's own client: the password goes over TLS, but never in what the server calls clear text."""
    with fake_server(full, impostor, host="127.0.0.1") as server:
        assert ended(server) is None
        assert SECRET in server.heard
    for demand in (clear, dialog, old):
        with fake_server(demand, impostor, host="127.0.0.1") as server:
            assert isinstance(ended(server), ServerUnproven)
        assert SECRET not in server.heard


def test_a_replica_is_proven_as_the_source_is(impostor: Path) -> None:
    """Its host alone says what its default is: rows may come from another machine though the source is on this one."""
    with fake_server(full, impostor) as server:
        replica = {"host": server.host, "port": server.port}
        source = Source.model_validate({"host": "127.0.0.1", "user": "lake", "password": CANARY, "replica": replica})
        with pytest.raises(ServerUnproven), connect(source.of_rows):
            pass
    assert SECRET not in server.heard


@pytest.mark.parametrize("text", ["no key at all", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"])
def test_a_file_without_a_key_needs_an_operator(text: str, tmp_path: Path) -> None:
    """Nothing is sent in its place."""
    (tmp_path / "key.pem").write_text(text)
    with fake_server(full) as server:
        error = ended(server, mode="disabled", server_public_key=str(tmp_path / "key.pem"))
    assert isinstance(error, OperatorNeeded)
    assert "source.tls.server_public_key" in str(error)
    assert SECRET not in server.heard
