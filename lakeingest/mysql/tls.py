"""TLS to the source: the contexts of its modes, and the pin of a server's public key."""

import base64
import functools
import hashlib
import ssl
from collections.abc import Iterator

from lakeingest.config import Source
from lakeingest.config.source import PIN, VERIFYING
from lakeingest.errors import OperatorNeeded

_VERSION, _KEY = 0xA0, 5  # in a certificate: the tag of the version, and the index of the key without the version


def context_of(source: Source) -> ssl.SSLContext | None:
    """The TLS context of the source, None without TLS. Raises OperatorNeeded if the file of `tls.ca` cannot be read."""
    mode = source.tls_mode
    if mode == "disabled":
        return None
    authority = text_of(source, "ca")  # the certificate of the authority; None: those of the system
    return _context(mode, authority if mode in VERIFYING else None)


def text_of(source: Source, key: str) -> str | None:
    """The content of the file that this key of `source.tls` names; None if the key is not set.

    Raises OperatorNeeded if the file cannot be read.
    """
    try:
        return source.tls.text(key)
    except OSError as error:
        path = source.tls.files[key]
        raise OperatorNeeded(f"source.tls.{key} {path} cannot be read: {error.strerror or error}") from error


def pin_of(certificate: bytes) -> str:
    """The pin of the public key of a certificate in DER: `sha256:` and Base64, as curl's pins have it.

    Only the public key is read, because libraries refuse some certificates that servers make, such as those of MariaDB
    with the serial number 0. The public key is the part after version, serial number, algorithm, issuer, validity and
    subject (RFC 5280, section 4.1). Raises ValueError if `certificate` is no certificate, or not in DER.
    """
    signed = _first_element(certificate)  # the body with the authority's signature
    body = _first_element(_contents(signed))  # without the signature
    parts = [part for tag, part in _elements(_contents(body)) if tag != _VERSION]  # not every certificate has a version
    if len(parts) <= _KEY:
        raise ValueError("a certificate without a public key")
    return PIN + base64.b64encode(hashlib.sha256(parts[_KEY]).digest()).decode()


def _first_element(data: bytes) -> bytes:
    """The first element of a part in DER; without an element, empty bytes, for which `_header` raises ValueError."""
    for _, element in _elements(data):
        return element
    return b""


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the elements of a part in DER: for each its tag, and the complete element with its tag and length."""
    while data:
        start, size = _header(data)
        if len(data) < start + size:
            raise ValueError("an element of a certificate is cut")
        yield data[0], data[: start + size]
        data = data[start + size :]


def _contents(element: bytes) -> bytes:
    """An element without its tag and length."""
    return element[_header(element)[0] :]


def _header(data: bytes) -> tuple[int, int]:
    """The index at which the contents of an element begin, and the length of the contents in bytes.

    Raises ValueError for anything but DER, because in an element of indefinite length the TLS library might find
    another public key than this module. Raises ValueError also for a tag of several bytes.
    """
    if len(data) < 2 or (data[0] & 0x1F) == 0x1F:  # noqa: PLR2004 - tag and length
        raise ValueError("an element of a certificate is cut, or has a long tag")
    if data[1] < 0x80:  # noqa: PLR2004 - a length in one byte
        return 2, data[1]
    length_bytes = data[1] & 0x7F  # the number of bytes that have the length; in DER they do not begin with a zero
    is_length_of_der = 0 < length_bytes <= 4 and len(data) >= 2 + length_bytes and data[2] != 0  # noqa: PLR2004
    if not is_length_of_der:
        raise ValueError("an element of a certificate has no length of DER")
    return 2 + length_bytes, int.from_bytes(data[2 : 2 + length_bytes], "big")


@functools.lru_cache(maxsize=16)
def _context(mode: str, authority: str | None) -> ssl.SSLContext:
    """The TLS context of a mode. `authority`: the authority's certificate; None: those of the system.

    It is cached, because loading the system's certificates takes long.
    """
    if mode not in VERIFYING:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    context = ssl.create_default_context(cadata=authority)
    context.check_hostname = mode == "verify_identity"
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # on from Python 3.13: an authority that MySQL made would fail
    return context


def unverified_context() -> ssl.SSLContext:
    """A TLS context that accepts every certificate."""
    return _context("required", None)
