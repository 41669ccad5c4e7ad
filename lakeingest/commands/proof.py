"""Warnings of `check`: servers to which a run would connect without a proof that they are the right ones."""

from collections.abc import Iterator

from lakeingest.config import Config, Source
from lakeingest.config.endpoints import is_plain_text
from lakeingest.core.condition import Checked

# For each mode of TLS that is not safe, the reason
_WEAK = {
    "disabled": "encrypts nothing, so who is in between reads the rows and may change them",
    "preferred": "goes on in plain text where a server offers no TLS, and proves no server",
    "required": "encrypts, and proves no server",
}


def proofs(config: Config) -> Iterator[Checked]:
    """The conditions that source, catalog and store must prove who they are. Each is only a warning if not met.

    The catalog has a condition only if pipeline.yml names its URI, the store only if pipeline.yml names its endpoint.
    """
    yield Checked("proof of the source", _of_source(config.source), fatal=False)
    if config.target.catalog.uri is not None:
        yield Checked("proof of the catalog", config.target.catalog.proof_warning, fatal=False)
    endpoint = config.target.storage.endpoint
    if endpoint is not None:
        finding = (
            "target.storage.endpoint is http://: keys are not sent, but who is between reads rows and can change them"
        )
        yield Checked("proof of the store", finding if is_plain_text(endpoint) else None, fatal=False)


def _of_source(source: Source) -> str | None:
    """A warning if the source, or its replica, need not prove who it is; None if each of them must, or is local."""
    # without a replica, `of_rows` is the source itself
    for key, server in (("source", source), ("source.replica", source.of_rows)):
        if server.is_proven or server.is_local:
            continue
        ignored = ", and source.tls.ca is not used" if server.tls.ca is not None else ""
        return (
            f"{key}.host is {server.host}, and source.tls.mode {server.tls_mode} {_WEAK[server.tls_mode]}{ignored}: set"
            " verify_identity, or source.tls.pin"
        )
    return None
