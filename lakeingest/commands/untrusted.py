"""`check --untrusted`: validates a pipeline.yml of somebody else, and lists what its runs would use.

No server is asked, and no variable or secret is read.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from lakeingest.commands.check import CheckResult, warning
from lakeingest.config import Config
from lakeingest.config.endpoints import endpoints_of
from lakeingest.config.load import read_document, references, validate
from lakeingest.core.tables.condition import Checked
from lakeingest.errors import ConfigError, NotBuiltYet
from lakeingest.quality import suites


def untrusted(path: Path, overrides: Iterable[str] = ()) -> CheckResult:
    """Validate the file and its quality suites. Warnings list the servers, code, variables and secrets of its runs.

    If the file has mistakes, the result has only these. If only the values of variables decide whether the file
    is right, only variables and secrets are listed.
    """
    checked: list[Checked] = []
    try:
        doc = read_document(path, overrides)
        config = validate(doc, path.parent.resolve())
    except (ConfigError, NotBuiltYet) as error:
        return CheckResult((Checked("pipeline.yml", str(error)),))
    if config is None:
        finding = "it depends on variables, which are not read; give those keys values with --set to see the rest"
        checked.append(Checked("pipeline.yml", finding))
    else:
        checked += [Checked("pipeline.yml", None), *_used_things(config)]
    return CheckResult((*checked, warning("variables and secrets that a run reads", references(doc))))


def _used_things(config: Config) -> Iterator[Checked]:
    """Whether the suites are valid; then warnings about servers, code that Spark loads, and SQL in suites."""
    yield Checked("quality suites", suites.finding(config.quality, None))  # None: no table is known
    yield warning("servers that a run logs in to", [f"{key}: {server}" for key, server in _servers(config).items()])
    yield warning("code that Spark loads", config.spark.loads_code)
    allowed = ["quality.sql: allow"] if config.quality.sql == "allow" else []
    yield warning("SQL in suites", allowed)


def _servers(config: Config) -> Mapping[str, Any]:
    """The servers that the configuration names, by their keys in pipeline.yml."""
    source, target = config.source, config.target
    servers = {
        "source.host": f"{source.host}:{source.port}",
        "source.replica": source.replica and f"{source.replica.host}:{source.replica.port}",
        "source.ssh": source.ssh and f"{source.ssh.host}:{source.ssh.port}",
        "target.catalog.uri": target.catalog.without_secrets,
        **_property_endpoints("target.catalog", target.catalog.properties),
        "target.storage.endpoint": target.storage.endpoint,
        **_property_endpoints("target.storage", target.storage.properties),
        "target.warehouse": target.warehouse if target.warehouse.scheme else None,
        "state": config.state if config.state.scheme else None,
        "metrics.push": config.metrics.push_host,
        "notify.webhook": config.notify.host,
        "notify.openlineage.url": config.notify.openlineage and config.notify.openlineage.host,
    }
    return {key: server for key, server in servers.items() if server}


def _property_endpoints(block: str, properties: Mapping[str, SecretStr]) -> dict[str, str]:
    """The servers that the properties of this block of pipeline.yml name, by their keys."""
    values = {name: value.get_secret_value() for name, value in properties.items()}
    return {f"{block}.properties.{name}": server for name, server in endpoints_of(values).items()}
