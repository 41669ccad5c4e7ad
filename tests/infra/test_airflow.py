"""The DAGs on a real Airflow: each command's exit code becomes what the DAG says."""

import json
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest

from lakeingest import Pipeline
from lakeingest.demo.server import LocalServer
from tests.mysql.database import database_on
from tests.servers.airflow import Ran, run_dags

ROOT = Path(__file__).parents[2]


@pytest.mark.mysql
@pytest.mark.long("installs Airflow, and tries a task four times")
def test_airflow_runs_the_dags(mysql_server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is handed over copies; without its source it is tried again; without its pipeline it is not."""
    folder, dags, home = tmp_path / "a b {{ ds }} 📚", tmp_path / "dags", tmp_path / "home"
    for one in (folder, dags, home):
        one.mkdir()
    monkeypatch.setenv("DB_PASSWORD", mysql_server.password)
    shutil.copy(ROOT / "infra" / "airflow" / "lakeingest_dag.py", dags)
    with database_on(mysql_server) as db, socket.create_server(("127.0.0.1", 0)) as free:
        db.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
        closed = free.getsockname()[1]
        free.close()
        copied = handed(folder / "copied", dags, mysql_server, mysql_server.port, db.name)
        handed(folder / "away", dags, mysql_server, closed, db.name)
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        found = run_dags(dags, home, {"PATH": programs, "PYTHONPATH": str(ROOT)})
        assert found == {
            "lakeingest_copied": Ran("run", "success", tries=1),
            "lakeingest_away": Ran("run", "failed", tries=4),
            "lakeingest_shop": Ran("run", "failed", tries=1),  # the template: its pipeline.yml is not here
        }
        [verified] = copied.verify()
        assert not verified.differs
        assert verified.target.rows == 2


def handed(folder: Path, dags: Path, server: LocalServer, port: int, database: str) -> Pipeline:
    """A pipeline in the folder, by whose name it is called, with its DAG among the others."""
    folder.mkdir()
    source = {"host": server.host, "port": port, "user": server.user, "password": "${DB_PASSWORD}"}
    doc = {"name": folder.name, "source": source, "tables": {"include": [f"{database}.*"]}}
    path = folder / "pipeline.yml"
    path.write_text(json.dumps(doc))
    pipeline = Pipeline.from_yaml(path)
    pipeline.hand_over()
    shutil.copy(folder / "schedule" / f"{folder.name}_dag.py", dags)
    return pipeline
