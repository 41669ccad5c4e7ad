"""The pin of a certificate's public key."""

import base64
import contextlib
import datetime as dt
import hashlib
import random
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from lakeingest.mysql.tls import pin_of

KEYS: dict[str, Any] = {
    "RSA": rsa.generate_private_key(65537, 2048),
    "EC": ec.generate_private_key(ec.SECP256R1()),
    "Ed25519": ed25519.Ed25519PrivateKey.generate(),
}


def certificate(key: Any) -> bytes:
    """A certificate of the key, in DER."""
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "db" * 20)]), dt.datetime.now(dt.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + dt.timedelta(days=1))
    return made.sign(key, None if key is KEYS["Ed25519"] else hashes.SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize("kind", KEYS)
def test_the_pin_is_of_the_public_key_alone(kind: str) -> None:
    """As `openssl dgst -sha256` has it; also in a certificate with the serial number 0, as MariaDB makes it."""
    key = KEYS[kind]
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    pin = "sha256:" + base64.b64encode(hashlib.sha256(public).digest()).decode()
    made = certificate(key)
    assert pin_of(made) == pin
    assert made.count(b"\x02\x01\x01") >= 1
    assert pin_of(made.replace(b"\x02\x01\x01", b"\x02\x01\x00", 1)) == pin


def test_what_is_no_certificate_has_no_pin() -> None:
    """Cut or altered anywhere; a length that is not definite might hide another key from TLS."""
    made, chance = certificate(KEYS["EC"]), random.Random(0)
    for _ in range(5_000):
        altered = bytearray(made)
        altered[chance.randrange(len(made))] = chance.randrange(256)
        with contextlib.suppress(ValueError):
            pin_of(bytes(altered[: chance.randrange(len(made) + 1)]))
    for wrong in (b"", b"\x30", b"\x30\x80" + made[4:] + b"\0\0", b"\x3f\x02" + made[2:], b"\x30\x85\0" + made):
        with pytest.raises(ValueError, match="certificate"):
            pin_of(wrong)
