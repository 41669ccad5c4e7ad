"""The rules and the dashboard of infra/monitoring: they name only what there is, and promtool takes them."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakeingest.monitoring.definitions import DEFINITIONS, SAMPLES
from tests.servers.debian_programs import program
from tests.servers.engines import Engine

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "infra" / "monitoring"
_ALL = [rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
RULES = [rule for rule in _ALL if "alert" in rule]
RECORDED = {rule["record"]: rule["expr"] for rule in _ALL if "record" in rule}
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
SITE = "https://example.com/lakeingest/"
# The types that Grafana generates from its own schemas. What they do not know is not in what they write.
SDK = Engine(
    "Grafana's SDK",
    ("grafana-foundation-sdk==1769699379!11.6.0",),
    """
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
register_default_plugins()
print(JSONEncoder().encode(Dashboard.from_json(asked["dashboard"])))
""",
)
ENTRY = re.compile(r"(lakeingest[_:]\w+)(?:\{([^}]*)\})?")


def queries() -> Iterator[str]:
    """The queries of the dashboard: those of its panels, and those of its variables."""
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def labels_of(sample: str) -> set[str]:
    """The labels that a series has. A recorded one has those of the series that it is made from."""
    if sample in RECORDED:
        return set.intersection(*(labels_of(name) for name, _ in ENTRY.findall(RECORDED[sample])))
    [definition] = [one for one in DEFINITIONS.values() if sample in one.samples]
    return {"pipeline", *definition.labels}


@pytest.mark.parametrize("query", [*(rule["expr"] for rule in _ALL), *queries()])
def test_a_query_names_metrics_and_labels_that_there_are(query: str) -> None:
    """Each is in the table of definitions."""
    used = ENTRY.findall(query)
    assert used
    for name, selectors in used:
        assert name in SAMPLES | RECORDED.keys()
        assert set(re.findall(r"(\w+)(?:=|!=|=~)\"", selectors)) <= labels_of(name)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_leads_to_a_runbook_that_exists(rule: dict[str, Any]) -> None:
    """A page of the site: of an error, or a part of the page about monitoring."""
    url, labels = rule["annotations"]["runbook_url"], re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"]))
    assert set(labels) <= set.union(*(labels_of(name) for name, _ in ENTRY.findall(rule["expr"])))
    page = url.removeprefix(SITE)
    assert page != url
    if page.startswith("runbooks/"):
        name = page.removeprefix("runbooks/").rstrip("/")
        runbooks = {path.stem for path in (ROOT / "lakeingest" / "runbooks").glob("*.md")}
        assert name in runbooks | {"{{ $labels.error }}"}
        return
    path, _, anchor = page.partition("/#")
    headings = re.findall(r"(?m)^#+ (.*)$", (ROOT / "docs" / f"{path}.md").read_text())
    assert anchor in {re.sub(r"\W+", "-", heading.lower()).strip("-") for heading in headings}


def test_the_dashboard_is_as_grafana_wants_it() -> None:
    """Panels with numbers of their own that overlap nowhere, on a data source that its reader chooses."""
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$(\w+)", " ".join(queries()))) <= variables


def lost(ours: Any, read: Any, path: str = "") -> Iterator[str]:
    """The paths of values that are not in what was read of them, or are others there."""
    if isinstance(ours, dict) and isinstance(read, dict):
        for key, value in ours.items():
            yield from lost(value, read.get(key), f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(read, list) and len(ours) == len(read):
        for number, pair in enumerate(zip(ours, read, strict=True)):
            yield from lost(*pair, f"{path}[{number}]")
    elif ours != read:
        yield f"{path}: {ours} is {read}"


def test_grafana_knows_every_key_of_the_dashboard() -> None:
    """Its own types read the dashboard, and write the same."""
    assert list(lost(DASHBOARD, json.loads(SDK.run({"dashboard": DASHBOARD})))) == []


def promtool(*arguments: str, given: str | None = None) -> str:
    """What promtool says, which is Prometheus' own."""
    command = [str(program("prometheus", "promtool")), *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_takes_the_rules() -> None:
    """They are well-formed, and each fires on the series on which it has to, and on no others."""
    promtool("check", "rules", str(FOLDER / "alerts.yml"))
    promtool("test", "rules", str(Path(__file__).with_name("alerts_test.yml")))


def test_every_rule_is_tried() -> None:
    """On series that let it fire."""
    tests = yaml.safe_load(Path(__file__).with_name("alerts_test.yml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in RULES}


def test_promtool_understands_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    """As rules, with values in the place of the variables."""
    exprs = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    rules = [{"record": f"query:{number}", "expr": expr} for number, expr in enumerate(exprs)]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"{len(exprs)} rules found" in promtool("check", "rules", str(tmp_path / "queries.yml"))
