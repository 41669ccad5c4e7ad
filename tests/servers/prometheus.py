"""Real servers of Prometheus: one that asks for metrics and evaluates rules, and a push gateway."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from lakeingest.demo.server import HOST, await_start, child, reserved_port
from tests.servers.debian_programs import program

SECONDS = 60.0


@contextmanager
def prometheus(folder: Path, target: str, rules: Path) -> Iterator[str]:
    """The URL of a server that asks `target` (host:port) for metrics, and evaluates the rules, each second."""
    folder.mkdir(parents=True)
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    job = {"job_name": "lakeingest", "honor_labels": True, "static_configs": [{"targets": [target]}]}
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump({"global": every, "rule_files": [str(rules)], "scrape_configs": [job]}))
    command = [str(program("prometheus", "prometheus")), f"--config.file={config}"]
    with reserved_port(None) as port:
        options = [f"--storage.tsdb.path={folder}/data", f"--web.listen-address={HOST}:{port}"]
        with child([*command, *options], folder / "log") as process:
            url = f"http://{HOST}:{port}"
            await_start(process, folder / "log", lambda: read(f"{url}/-/ready"), SECONDS)
            yield url


@contextmanager
def push_gateway(folder: Path) -> Iterator[str]:
    """The URL of an empty push gateway."""
    command = [str(program("prometheus-pushgateway", "prometheus-pushgateway"))]
    with reserved_port(None) as port:
        url = f"http://{HOST}:{port}"
        with child([*command, f"--web.listen-address={HOST}:{port}"], folder / "gateway.log") as process:
            await_start(process, folder / "gateway.log", lambda: read(f"{url}/-/ready"), SECONDS)
            yield url


def read(url: str) -> str:
    """What a server answers. Raises OSError."""
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - HTTP only
        return str(answer.read().decode())


def query(url: str, expr: str) -> list[dict[str, Any]]:
    """The series that Prometheus finds now."""
    found: list[dict[str, Any]] = json.loads(read(f"{url}/api/v1/query?query={quote(expr)}"))["data"]["result"]
    return found
