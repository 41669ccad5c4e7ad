"""Where secrets of pipeline.yml must not be: in what other users of the machine, SQL and pages can read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

CANARIES = {
    "SOURCE_PASSWORD": "canary-of-source",
    "CREDENTIAL": "client:canary-of-catalog",
    "STORE_KEY": "canary-of-store",
    "CONF_SECRET": "canary-of-conf",
}
PIPELINE = {
    "name": "hidden",
    "source": {"host": "127.0.0.1", "port": 1, "user": "lake", "password": "${SOURCE_PASSWORD}"},
    "tables": {"include": ["shop.*"]},
    "target": {
        "catalog": {"type": "rest", "uri": "http://127.0.0.1:1", "properties": {"credential": "${CREDENTIAL}"}},
        "warehouse": "s3://lake/warehouse",
        "storage": {
            "endpoint": "http://127.0.0.1:1",
            "region": "us-east-1",
            "properties": {"s3.access-key-id": "known", "s3.secret-access-key": "${STORE_KEY}"},
        },
    },
    "state": "./state",
    "spark": {"conf": {"spark.ui.enabled": "true", "spark.hadoop.fs.s3a.bucket.b.secret.key": "${CONF_SECRET}"}},
}
HUDI = {"target": {key: value for key, value in PIPELINE["target"].items() if key != "catalog"} | {"format": "hudi"}}  # type: ignore[attr-defined]


def started(folder: Path, **changes: object) -> subprocess.CompletedProcess[str]:
    """What a process that opens the session of the pipeline with these changes prints."""
    (folder / "pipeline.yml").write_text(yaml.safe_dump(PIPELINE | changes))
    return subprocess.run(
        [sys.executable, "-m", "tests.security.started", folder],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ, **CANARIES, "TMPDIR": str(folder)},
    )


def assert_no_secret(where: str, text: str) -> None:
    """None of the secrets is in the text."""
    assert [name for name, secret in CANARIES.items() if secret.rpartition(":")[2] in text] == [], where


@pytest.mark.spark
@pytest.mark.parametrize("changes", [{}, HUDI], ids=["iceberg", "hudi"])
@pytest.mark.long("starts Spark")
def test_nobody_sees_a_secret_of_a_session(tmp_path: Path, changes: dict[str, object]) -> None:
    """Neither in arguments of its processes, nor in its environment, its ports, its pages, its SQL and its files."""
    result = started(tmp_path, **changes)
    assert result.returncode == 0, result.stderr[-2000:]
    seen = json.loads(result.stdout.splitlines()[-1])
    assert {"arguments of java", "environment of java", "SQL", "environment/"} <= set(seen)
    assert "canary" not in seen["SQL"]
    assert seen["blocks of tasks"] == ""
    for where, text in seen.items():
        if "environment of" in where:  # of the same user alone; what a cloud's own clients need stays there
            assert CANARIES["SOURCE_PASSWORD"] not in text, where
        else:
            assert_no_secret(where, text)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert_no_secret(str(file), file.read_bytes().decode(errors="replace"))


@pytest.mark.spark
@pytest.mark.long("a failure of what another test shows")
def test_a_session_that_does_not_start_shows_no_secret(tmp_path: Path) -> None:
    """Its error and its log name the reason alone."""
    result = started(tmp_path, spark={"conf": {"spark.driver.memory": "1k", "spark.secret.b": "${CONF_SECRET}"}})
    assert result.returncode != 0
    assert "Spark does not start" in result.stderr
    assert_no_secret("output", result.stdout + result.stderr)
    assert_no_secret("log", (tmp_path / "state" / "spark.log").read_text())
