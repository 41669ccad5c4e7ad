"""What `metrics`, `notify` and `max_staleness` of pipeline.yml may say."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lakeingest.config import Config, parse_config
from lakeingest.config.load import validate
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ConfigError

SOURCE = {"host": "db.example.com", "user": "lake"}


def parsed(environment: Mapping[str, str] | None = None, **blocks: Any) -> Config:
    """A pipeline with these blocks."""
    doc = {"name": "shop", "source": SOURCE, "tables": {"include": ["shop.*"]}} | blocks
    return parse_config(doc, Path("/shop"), environment or {})


def test_without_the_keys_nothing_is_measured_or_sent() -> None:
    """The port is for this machine alone, unless someone says another address."""
    config = parsed()
    assert not config.metrics.is_set
    assert config.metrics.address == "127.0.0.1"
    assert (config.notify.webhook, config.notify.host) == (None, None)


def test_places_of_metrics() -> None:
    """A relative path begins at the folder of pipeline.yml; each place alone is enough."""
    assert parsed(metrics={"textfile": "shop.prom"}).metrics.textfile == Path("/shop/shop.prom")
    assert parsed(metrics={"textfile": "/node/shop.prom"}).metrics.textfile == Path("/node/shop.prom")
    places: list[dict[str, Any]] = [{"textfile": "shop.prom"}, {"port": 9464}, {"push": "http://gateway:9091"}]
    for metrics in (*places, {"opentelemetry": True}):
        assert parsed(metrics=metrics).metrics.is_set
    assert not parsed(metrics={"address": "::1"}).metrics.is_set


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"textfile": "shop.txt"}, r"metrics\.textfile: .*must end in \.prom"),
        ({"port": 0}, r"metrics\.port"),
        ({"port": 65536}, r"metrics\.port"),
        ({"push": "gateway:9091"}, "push is the URL of a push gateway"),
        ({"push": "file:///etc/passwd"}, "push is the URL of a push gateway"),
        ({"push": "https://us:se-cret@gateway"}, "without user and password"),
        ({"push_password": "se-cret"}, "which is not set"),
        ({"push": "http://gateway", "push_user": "us", "push_password": "se-cret"}, "sent in plain text"),
        ({"textfiles": "shop.prom"}, "did you mean textfile"),
    ],
)
def test_a_wrong_place_is_named(metrics: dict[str, Any], message: str) -> None:
    """And no message has the password."""
    with pytest.raises(ConfigError, match=message) as refused:
        parsed(metrics=metrics)
    assert "se-cret" not in str(refused.value)


def test_a_password_may_go_to_this_machine() -> None:
    """Or to a server that is asked by TLS."""
    for url in ("http://127.0.0.1:9091", "https://gateway"):
        metrics = parsed(metrics={"push": url, "push_user": "us", "push_password": "se-cret"}).metrics
        assert "se-cret" not in repr(metrics)


def test_the_key_on_is_read_as_a_person_has_written_it() -> None:
    """YAML 1.1 takes it for a boolean."""
    webhook = "https://hooks.example.com/T0/se-cret"
    assert parsed(notify={"webhook": webhook, True: ["failed"]}).notify.on == ("failed",)
    assert parsed(notify={"webhook": webhook, "on": ["stale"]}).notify.on == ("stale",)
    assert parsed(notify={"webhook": webhook}).notify.on == ("failed", "stale", "recovered")
    assert parsed(notify={"webhook": webhook}).notify.host == "hooks.example.com"
    assert "se-cret" not in repr(parsed(notify={"webhook": webhook}).notify)


@pytest.mark.parametrize(
    ("notify", "message"),
    [
        ({"webhook": "http://hooks.example.com/se-cret"}, "plain text"),
        ({"webhook": "ftp://hooks.example.com/se-cret"}, "webhook is the URL"),
        ({"webhook": "https:///se-cret"}, "webhook is the URL"),
        ({"webhook": "https://hooks.example.com:port/se-cret"}, "webhook is the URL"),
        ({True: ["lost"]}, r"notify\.on"),
        ({"format": "teams"}, r"notify\.format"),
        ({"openlineage": {}}, r"notify\.openlineage\.url"),
        ({"openlineage": {"url": "marquez/se-cret"}}, "url must begin with https:// or http://"),
        ({"openlineage": {"url": "https://us:se-cret@marquez"}}, "without user and password"),
        ({"openlineage": {"url": "http://marquez", "api_key": "se-cret"}}, "api_key would be sent in plain text"),
    ],
)
def test_a_wrong_webhook_is_refused(notify: dict[Any, Any], message: str) -> None:
    """And no message has a part of its URL, which may be a token."""
    with pytest.raises(ConfigError, match=message) as refused:
        parsed(notify=notify)
    assert "se-cret" not in str(refused.value)


def test_plain_text_is_for_this_machine_or_by_a_key_of_its_own() -> None:
    """Messages may name keys of rows."""
    assert parsed(notify={"webhook": "http://localhost:8080/x"}).notify.host == "localhost:8080"
    assert parsed(notify={"webhook": "http://hooks.lan/x", "plain_http": "allow"}).notify.host == "hooks.lan"


def test_a_secret_by_reference_is_fetched_by_a_run(tmp_path: Path) -> None:
    """For the webhook and for the gateway; who only looks at the file fetches nothing."""
    (tmp_path / "webhook").write_text("https://hooks.example.com/T0\n")
    (tmp_path / "password").write_text("se-cret\n")
    blocks: dict[str, dict[str, Any]] = {
        "notify": {"webhook": f"file://{tmp_path}/webhook"},
        "metrics": {"push": "https://gateway", "push_user": "us", "push_password": f"file://{tmp_path}/password"},
    }
    lineage = {"url": "https://marquez/api/v1/lineage", "api_key": f"file://{tmp_path}/password"}
    blocks["notify"]["openlineage"] = lineage
    config = parsed(**blocks)
    assert config.notify.host == "hooks.example.com"
    assert config.metrics.push_password.get_secret_value() == "se-cret"
    assert config.notify.openlineage is not None
    assert config.notify.openlineage.api_key.get_secret_value() == "se-cret"
    assert "se-cret" not in repr(config.notify)
    seen = validate({"name": "shop", "source": SOURCE, "tables": {"include": ["shop.*"]}} | blocks, Path("/shop"))
    assert seen is not None
    assert seen.notify.host is None


def test_the_last_pattern_decides_on_the_objective() -> None:
    """As with every option."""
    options = {"shop.*": {"max_staleness": "1d"}, "shop.orders": {"max_staleness": "15m"}}
    tables = parsed(tables={"include": ["shop.*"], "options": options}).tables
    assert tables.of(TableId("shop", "orders")).max_staleness == timedelta(minutes=15)
    assert tables.of(TableId("shop", "items")).max_staleness == timedelta(days=1)
    assert tables.of(TableId("other", "items")).max_staleness is None
