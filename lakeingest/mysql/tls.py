"""TLS to the source: the contexts of its modes, and the pin of a server's public key."""

import base64
import functools
import hashlib
import ssl

from lakeingest.config import Source
from lakeingest.config.source import PIN
from lakeingest.errors import OperatorNeeded

_VERIFYING = {"verify_ca", "verify_identity"}


def context_of(source: Source) -> ssl.SSLContext | None:
    """The context of the mode in force, None without TLS. OperatorNeeded where `tls.ca` cannot be read."""
    mode = source.tls_mode
    if mode == "disabled":
        return None
    authority = text_of(source, "ca")
    return _context(mode, authority if mode in _VERIFYING else None)


def text_of(source: Source, key: str) -> str | None:
    """What is in a file of `source.tls`, None where none is given. OperatorNeeded where it cannot be read."""
    try:
        return source.tls.text(key)
    except OSError as error:
        path = source.tls.files[key]
        raise OperatorNeeded(f"source.tls.{key} {path} cannot be read: {error.strerror or error}") from error


def pin_of(certificate: bytes) -> str:
    """The pin of a certificate's public key, the certificate in DER: `sha256:` and Base64, as curl's pins have it."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = x509.load_der_x509_certificate(certificate).public_key()
    digest = hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
    return PIN + base64.b64encode(digest).decode()


@functools.lru_cache(maxsize=16)
def _context(mode: str, authority: str | None) -> ssl.SSLContext:
    """Cached: loading the system's certificates takes longer than reading a small chunk."""
    if mode not in _VERIFYING:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    context = ssl.create_default_context(cadata=authority)
    context.check_hostname = mode == "verify_identity"
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # on from Python 3.13: an authority that MySQL made would fail
    return context


def unverified() -> ssl.SSLContext:
    """A context that proves nothing."""
    return _context("required", None)
