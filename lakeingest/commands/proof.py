"""Warnings of `check`: servers to which a run would connect without a proof that they are the right ones."""

from collections.abc import Collection, Iterator

from lakeingest.config import Config, Source
from lakeingest.config.endpoints import is_plain_text
from lakeingest.core.tables.condition import Checked

# For each mode of TLS that is not safe, the reason
_WEAK = {
    "disabled": "encrypts nothing, so who is in between reads the rows and may change them",
    "preferred": "goes on in plain text where a server offers no TLS, and proves no server",
    "required": "encrypts, and proves no server",
}


# For each condition of `check`, the server that has not answered if the condition is not met
_ANSWERS = {"connection": "source", "catalog": "catalog", "warehouse": "store"}


def proofs(config: Config, checked: Collection[Checked] = ()) -> Iterator[Checked]:
    """The conditions that source, catalog and store must prove who they are. Each is only a warning if not met.

    The catalog has a condition only if pipeline.yml names its URI, the store only if pipeline.yml names its endpoint.
    A server that did not answer, as the conditions in `checked` say, has proven nothing. So if nothing is wrong with
    its settings, its condition is left out, and is not reported as met.
    """
    silent = {_ANSWERS[one.name] for one in checked if one.name in _ANSWERS and one.finding is not None}
    for server, finding in _findings(config):
        if finding is not None or server not in silent:
            yield Checked(f"proof of the {server}", finding, fatal=False)


def _findings(config: Config) -> Iterator[tuple[str, str | None]]:
    """Each server that pipeline.yml names, and a warning about it; None if it must prove who it is."""
    yield "source", _of_source(config.source)
    if config.target.catalog.uri is not None:
        yield "catalog", config.target.catalog.proof_warning
    endpoint = config.target.storage.endpoint
    if endpoint is not None:
        finding = (
            "target.storage.endpoint is http://: keys are not sent, but who is between reads rows and can change them"
        )
        yield "store", finding if is_plain_text(endpoint) else None


def _of_source(source: Source) -> str | None:
    """A warning if the source, or its replica, need not prove who it is; None if each of the two must, or is local."""
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
