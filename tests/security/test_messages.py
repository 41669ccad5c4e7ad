import pickle
from pathlib import Path

import pytest

from lakeingest.commands.proof import proofs
from lakeingest.commands.submit import _assert_submittable
from lakeingest.config import Config, load_config, parse_config
from lakeingest.config.formats import spark_properties
from lakeingest.core.tables.condition import Checked
from lakeingest.errors import ConfigError

CANARY = "kanari"
HERE = Path("/etc/lake")


def parsed(source: dict[str, object] | None = None, **target: object) -> Config:
    """A pipeline.yml with these blocks."""
    account = {"host": "127.0.0.1", "user": "lake"} | (source or {})
    return parse_config({"name": "a", "source": account, "tables": {"include": ["a.*"]}, "target": target}, HERE, {})


@pytest.mark.parametrize(
    "text",
    [
        f"source: {{password: {CANARY}",
        f"source:\n  password: {CANARY}: x\n",
        f"password: '{CANARY}\n",
        f"password: *{CANARY}\n",
        f"password: !{CANARY} x\n",
        f'password: "{CANARY}\\q"\n',
        f"password: @{CANARY}\n",
        f"password: {CANARY}\n\tx: {CANARY}\n",
        f"password: &{CANARY} a\nb: &{CANARY} *none\n",
    ],
)
def test_a_mistake_in_yaml_is_named_by_its_place(text: str, tmp_path: Path) -> None:
    """The line itself may hold a password; neither the message nor its causes show it."""
    path = tmp_path / "pipeline.yml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"is not YAML: line \d+, column \d+: ") as refused:
        load_config(path, environment={})
    assert CANARY not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("given", [f"source.password=[{CANARY}", f"source.password.x={CANARY}", f"{CANARY}"])
def test_a_mistake_in_set_is_named_by_its_key(given: str, tmp_path: Path) -> None:
    """Its value may be a password."""
    path = tmp_path / "pipeline.yml"
    path.write_text("{name: a, source: {host: a, user: b, password: c}, tables: {include: [a.b]}}")
    with pytest.raises(ConfigError, match="--set") as refused:
        load_config(path, [given], environment={})
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    "uri",
    [
        f"postgresql://me:{CANARY}@127.0.0.1/d",
        f"postgresql://me:a/{CANARY}@127.0.0.1:2/d",
        f"postgresql://me:a%40{CANARY}@127.0.0.1/d",
        f"postgresql://me:a#{CANARY}@127.0.0.1/d",
        f"postgresql://me:{CANARY}?@127.0.0.1/d",
    ],
)
def test_a_postgresql_address_is_read_by_what_connects(uri: str) -> None:
    """So that no part of the password is taken for a host or a path, which messages show."""
    target = parsed(catalog={"type": "sql", "uri": uri}).target
    assert CANARY not in target.catalog_place
    assert target.catalog_place.startswith("postgresql://127.0.0.1")
    assert CANARY in target.catalog.password
    assert CANARY not in spark_properties(target)["spark.sql.catalog.lake.uri"]


@pytest.mark.parametrize(
    "catalog",
    [
        {"type": "sql", "uri": f"postgresql://me:a@{CANARY}@127.0.0.1/d"},
        {"type": "sql", "uri": f"postgresql://127.0.0.1/d?password={CANARY}"},
        {"type": "sql", "uri": f"postgresql:me:{CANARY}@127.0.0.1/d"},
        {"type": "rest", "uri": f"https://me:{CANARY}@catalog/a"},
        {"type": "rest", "uri": f"https://me:{CANARY}/x@catalog/a"},
        {"type": "rest", "uri": "https://catalog", "properties": {"oauth2-server-uri": f"https://a:{CANARY}@b"}},
        {"type": "hive", "uri": f"thrift://me:{CANARY}@hive:9083"},
        {"type": "glue", "properties": {"glue.endpoint": f"https://a:{CANARY}@b"}},
    ],
)
def test_an_endpoint_with_a_password_is_refused(catalog: dict[str, object]) -> None:
    """Endpoints stand in messages; the refusal does not show it."""
    with pytest.raises(ConfigError) as refused:
        parsed(catalog=catalog, warehouse="s3://a/b")
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize("name", ["endpoint", "s3.endpoint"])
def test_an_endpoint_of_a_store_with_a_password_is_refused(name: str) -> None:
    """As that of a catalog is."""
    url = f"https://a:{CANARY}@store"
    storage = {"endpoint": url} if name == "endpoint" else {"properties": {name: url}}
    with pytest.raises(ConfigError, match="without user and password") as refused:
        parsed(storage=storage, warehouse="s3://a/b", catalog={"type": "glue"})
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize("name", ["token", "credential", "header.Authorization", "header.X-Api-Key"])
def test_a_catalog_on_another_host_gets_no_secret_in_plain_text(name: str) -> None:
    """Whoever is in between would have it. On the loopback address nobody is."""
    for uri in ("http://catalog:8181", "http://127.0.0.2"):
        with pytest.raises(ConfigError, match="use https://") as refused:
            parsed(catalog={"type": "rest", "uri": uri, "properties": {name: CANARY}})
        assert CANARY not in str(refused.value)
    for uri in ("https://catalog:8181", "http://127.0.0.1:8181"):
        assert parsed(catalog={"type": "rest", "uri": uri, "properties": {name: CANARY}})
    elsewhere = {"credential": CANARY, "oauth2-server-uri": "http://login/tokens"}
    with pytest.raises(ConfigError, match="oauth2-server-uri"):
        parsed(catalog={"type": "rest", "uri": "https://catalog", "properties": elsewhere})


@pytest.mark.parametrize(
    ("query", "libpq", "jdbc"),
    [
        ("", "sslmode=verify-full&sslrootcert=", "sslmode=verify-full&sslfactory=org.postgresql.ssl.DefaultJavaSSL"),
        ("?sslrootcert=/ca.pem", "sslmode=verify-full&sslrootcert=%2Fca.pem", "sslmode=verify-full&sslrootcert="),
        ("?sslmode=require", "sslmode=require", "sslmode=require"),
    ],
)
def test_a_database_on_another_host_proves_who_it_is(query: str, libpq: str, jdbc: str) -> None:
    """By default, with the system's authorities, to both clients; another sslmode is kept, and warned of."""
    target = parsed(catalog={"type": "sql", "uri": f"postgresql://me:{CANARY}@db/d{query}"}).target
    assert libpq in target.pyiceberg_properties()["uri"]
    assert jdbc in spark_properties(target)["spark.sql.catalog.lake.uri"]
    assert (target.catalog.proof_warning is None) is ("require" not in query)
    assert parsed(catalog={"type": "sql", "uri": "postgresql://me@127.0.0.1/d"}).target.catalog.proof_warning is None


@pytest.mark.parametrize("setting", ["spark.hadoop.fs.s3a.secret.key", "spark.sql.catalog.x.token", "spark.a.password"])
def test_a_job_has_no_secret_in_the_settings_of_spark(setting: str) -> None:
    """The request and the pages of the service would show it; what only names a provider is none."""
    cluster = {"state": "s3://a/s", "target": {"warehouse": "s3://a/w", "catalog": {"type": "glue"}}}
    account = {"host": "db", "user": "u", "password": "file:///run/secret"}

    def job(conf: dict[str, str]) -> Config:
        doc = {"name": "a", "source": account, "tables": {"include": ["a.*"]}, "spark": {"conf": conf}, **cluster}
        return parse_config(doc, HERE, {}, cluster=True)

    with pytest.raises(ConfigError, match=r"spark\.conf: ") as refused:
        _assert_submittable(job({setting: CANARY}))
    assert CANARY not in str(refused.value)
    _assert_submittable(job({"spark.hadoop.fs.s3a.aws.credentials.provider": "a.B", "spark.executor.cores": "2"}))


@pytest.mark.parametrize(
    ("source", "warned"),
    [
        ({"host": "127.0.0.1"}, None),
        ({"host": "db"}, None),
        ({"host": "db", "tls": {"ca": "ca.pem"}}, None),
        ({"host": "db", "tls": {"pin": "sha256:" + "A" * 43 + "="}}, None),
        ({"host": "db", "tls": {"mode": "required"}}, "source.tls.mode required encrypts, and proves no server"),
        ({"host": "db", "tls": {"mode": "required", "ca": "ca.pem"}}, "source.tls.ca is not used"),
        ({"host": "db", "tls": {"mode": "preferred"}}, "source.tls.mode preferred goes on in plain text"),
        ({"host": "db", "tls": {"mode": "disabled"}}, "source.tls.mode disabled encrypts nothing"),
        ({"host": "::1", "replica": {"host": "db2"}, "tls": {"mode": "required"}}, "source.replica.host is db2"),
    ],
)
def test_check_warns_of_a_source_that_proves_nothing(source: dict[str, object], warned: str | None) -> None:
    """By the names of the keys, whether the source answers or not."""
    [found] = [one for one in proofs(parsed(source)) if one.name == "proof of the source"]
    assert not found.fatal
    assert (found.finding is None) is (warned is None)
    assert warned is None or warned in str(found.finding)


@pytest.mark.parametrize(
    ("condition", "server"), [("connection", "source"), ("catalog", "catalog"), ("warehouse", "store")]
)
def test_check_says_of_no_server_that_did_not_answer_that_it_is_proven(condition: str, server: str) -> None:
    """Settings that demand a proof are none. A warning about settings stays; whoever answered has a result."""
    target = {
        "catalog": {"type": "rest", "uri": "https://catalog.example.com"},
        "storage": {"endpoint": "https://s3.example.com"},
    }
    every = {"proof of the source", "proof of the catalog", "proof of the store"}

    def names(config: Config, finding: str | None) -> set[str]:
        return {one.name for one in proofs(config, [Checked(condition, finding), Checked("spool", "damaged")])}

    proven = parsed({"host": "db"}, **target)
    assert names(proven, None) == every
    assert names(proven, "it is away") == every - {f"proof of the {server}"}
    weak = parsed(
        {"host": "db", "tls": {"mode": "disabled"}},
        catalog={"type": "rest", "uri": "http://catalog.example.com"},
        storage={"endpoint": "http://s3.example.com"},
    )
    assert names(weak, "it is away") == every


def test_executors_have_what_proves_the_source(tmp_path: Path) -> None:
    """A task on another machine has the files' text, which the driver has read."""
    ca = tmp_path / "ca.pem"
    ca.write_text("-----BEGIN CERTIFICATE-----\n")
    source = parsed({"host": "db", "tls": {"ca": str(ca)}}).source
    assert source.tls.text("ca") == ca.read_text()
    sent = pickle.dumps(source)
    ca.unlink()
    there = pickle.loads(sent)  # noqa: S301 - our own
    assert there.tls.text("ca") == "-----BEGIN CERTIFICATE-----\n"
    assert there.is_proven
