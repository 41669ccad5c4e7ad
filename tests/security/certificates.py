"""Certificates for tests: an authority, and servers that it knows or does not."""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)
_TIME = dt.datetime.now(dt.UTC)


@dataclass(frozen=True)
class Authority:
    """A certificate authority, whose certificate is in the file `ca`; files of servers are made beside it."""

    folder: Path
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def new(cls, folder: Path) -> "Authority":
        """An authority that nobody knows yet."""
        key = ec.generate_private_key(ec.SECP256R1())
        limits = x509.KeyUsage(*[True, False, False, False, False, True, True, False, False])
        made = (
            _builder("an authority", "an authority", key.public_key(), 9)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(limits, critical=True)
            .sign(key, hashes.SHA256())
        )
        (folder / "ca.pem").write_bytes(made.public_bytes(Encoding.PEM))
        return cls(folder, key)

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        return self.folder / "ca.pem"

    def server(self, name: str, address: str, days: int = 5) -> Path:
        """A file with key and certificate of a server at an address; with negative `days` it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = (
            _builder("db", "an authority", key.public_key(), days)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path = self.folder / f"{name}.pem"
        path.write_bytes(private + made.public_bytes(Encoding.PEM))
        return path


def _builder(subject: str, issuer: str, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in (subject, issuer)]
    return (
        x509.CertificateBuilder()
        .subject_name(names[0])
        .issuer_name(names[1])
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_TIME - 9 * _DAY)
        .not_valid_after(_TIME + days * _DAY)
    )
