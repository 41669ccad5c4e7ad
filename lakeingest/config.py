"""pipeline.yml as frozen values: the one source of truth for the source, the catalog and the state.

Keys of the interface that this version does not act on are refused as not built yet, never accepted and ignored.
"""

import difflib
import fnmatch
import os
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote as encode

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from lakeingest.core.keys import quote
from lakeingest.core.schema import TableId
from lakeingest.duration import Duration
from lakeingest.errors import ConfigError, NotBuiltYet
from lakeingest.place import Place, below, uri
from lakeingest.services import EmrServerless, Submit
from lakeingest.tables import TableOptions, Tables

CATALOG = "lake"  # the catalog's name in Spark and PyIceberg, and so in users' queries
SUITES = Path("quality")  # where users' suites are looked for, unless a folder is named
_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(:-(?P<default>[^}]*))?\}")
_DOT = "\0"  # stands for a dot within a key, while keys are joined by dots
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}

_NOT_BUILT = (
    "tables.options.*.chunk_key",
    "tables.options.*.partition_by",
    "tables.options.*.columns",
    "tables.options.*.deletes",
    "tables.options.*.metadata",
    "target.catalog.uri",
    "changelog",
    "points",
    "throttle",
    "submit.emr",
    "submit.dataproc",
    "submit.dataproc-serverless",
)


def _secret(secret: SecretStr) -> SecretStr:
    scheme, colon, _ = secret.get_secret_value().partition("://")
    if colon and scheme in {"aws-secretsmanager", "gcp-secretmanager", "file"}:
        raise NotBuiltYet(f"source.password: {scheme} references are not built yet; use ${{VAR}}")
    return secret


Secret = Annotated[SecretStr, AfterValidator(_secret)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Tls(_Frozen):
    """How the connection to the source is protected; `mode` None: preferred on loopback, else required."""

    mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] | None = None
    ca: Path | None = None


class Source(_Frozen):
    """The server that tables are read from: one file, one server, one position."""

    type: Literal["mysql"] = "mysql"
    host: str
    port: int = Field(default=3306, ge=1, le=65535)
    user: str
    password: Secret = SecretStr("")
    tls: Tls = Tls()
    server_ids: str = Field(default="auto", coerce_numbers_to_str=True)
    max_connections: int = Field(default=8, ge=2)

    @property
    def tls_mode(self) -> str:
        """The mode in force."""
        return self.tls.mode or ("preferred" if self.host in _LOOPBACK else "required")

    @property
    def server_id_range(self) -> range:
        """The replication server ids that readers may take."""
        if self.server_ids == "auto":
            return range(2**30, 2**31)
        low, _, high = self.server_ids.partition("-")
        return range(int(low), int(high or low) + 1)

    @model_validator(mode="after")
    def _server_ids_are_a_range(self) -> Self:
        if self.server_ids != "auto" and not re.fullmatch(r"[1-9]\d*(-[1-9]\d*)?", self.server_ids):
            raise ValueError("server_ids is `auto` or a range such as 5400-5499")
        if not self.server_id_range:
            raise ValueError("server_ids is an empty range")
        if self.server_id_range[-1] >= 2**32:
            raise ValueError(f"server_ids end at {2**32 - 1}")
        return self


class Catalog(_Frozen):
    """Where tables are found by name; `type` None: for Iceberg SQLite under the warehouse, for Hudi folders of it."""

    type: Literal["sql", "rest", "glue", "hive", "path"] | None = None


class History(_Frozen):
    """How long a published commit can still be read once a later one has replaced it.

    The last `least` published commits are kept whatever their age.
    """

    keep: Duration = timedelta(days=5)
    least: int = Field(default=20, ge=1)


class Target(_Frozen):
    """Where tables go, and how long their older states are kept."""

    format: Literal["iceberg", "hudi"] = "iceberg"
    catalog: Catalog = Catalog()
    warehouse: Place = Field(default=Path("./warehouse"), validate_default=True)
    table: str = "{database}.{table}"
    history: History = History()

    @property
    def catalog_file(self) -> Path:
        """The SQLite file of the embedded catalog."""
        return self.warehouse / "catalog.db"

    def identifier(self, table: TableId) -> tuple[str, str]:
        """The namespace and the name of a table's target."""
        namespace, _, name = self.table.partition(".")  # a database's name may have a dot, too
        named = {"database": table.database, "table": table.name}
        return namespace.format(**named), name.format(**named)

    def source_of(self, namespace: str, name: str) -> TableId | None:
        """The table whose target has this identifier; None where it has a name that no target has."""
        pattern = re.escape(self.table.replace(".", "\0", 1))
        for field in ("database", "table"):
            group = re.escape("{" + field + "}")
            pattern = pattern.replace(group, f"(?P<{field}>.+)", 1).replace(group, f"(?P={field})")
        found = re.fullmatch(pattern, f"{namespace}\0{name}", re.DOTALL)
        return None if found is None else TableId(found["database"], found["table"])

    def folder(self, table: TableId) -> Path:
        """Where a table is that is found by its folder; a sign that no file name may have is percent-encoded."""
        return self.warehouse.joinpath(*(encode(part, safe=" ") for part in self.identifier(table)))

    def name(self, table: TableId) -> str:
        """The table's name as users query it, or the folder that they load."""
        if self.format == "hudi":
            return str(self.folder(table))
        return ".".join(part if part.isidentifier() else quote(part) for part in (CATALOG, *self.identifier(table)))

    def pyiceberg_properties(self) -> dict[str, str]:
        """What PyIceberg's SqlCatalog is opened with."""
        return {"uri": f"sqlite:///{self.catalog_file}", "warehouse": self.warehouse.as_uri()}

    def spark_properties(self) -> dict[str, str]:
        """The Spark settings of the format; in one session two formats' extensions spoil each other's tables."""
        if self.format == "hudi":
            return {
                "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
                "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
                "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
                # days and times as they are, also those before 1582
                "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
                "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
                "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
            }
        catalog = {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": f"jdbc:sqlite:{self.catalog_file}",
        }
        if self.catalog.type == "glue":
            catalog = {
                "catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            }
        prefix = f"spark.sql.catalog.{CATALOG}"
        return {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            **{f"{prefix}.{key}": value for key, value in catalog.items()},
            f"{prefix}.warehouse": uri(self.warehouse),
            f"{prefix}.cache-enabled": "false",  # PyIceberg's commits must be seen at once
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        }


class Spark(_Frozen):
    """The engine: its jars, and settings that win over ours."""

    jars: Literal["auto", "provided"] | tuple[str, ...] = "auto"
    conf: dict[str, str] = {}


class Quality(_Frozen):
    """The folder of the users' suites, None where there is none, and what becomes of rows that fail."""

    suites: Place | None = None
    on_failure: Literal["stop", "quarantine"] = "stop"


class Config(_Frozen):
    """A whole pipeline.yml; all paths are absolute."""

    version: Literal[1] = 1
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    source: Source
    tables: Tables
    target: Target = Target()
    state: Place = Field(default=Path("./state"), validate_default=True)
    quality: Quality = Quality()
    spark: Spark = Spark()
    submit: Submit = Submit()

    @model_validator(mode="after")
    def _only_what_is_built(self, info: ValidationInfo) -> Self:
        default = "path" if self.target.format == "hudi" else "sql"
        catalog = "glue" if default == "sql" and info.context else default  # SQLite is a file of one machine
        for key, value, built in (
            ("tables.startup", self.tables.startup, "initial"),
            ("target.catalog.type", self.target.catalog.type or default, catalog),
            ("quality.on_failure", self.quality.on_failure, "stop"),
        ):
            if value != built:
                where = " on a cluster" if info.context else ""
                raise NotBuiltYet(f"{key}: {value} is not built yet{where}; this version has {built}")
        fields = set(re.findall(r"\{(\w*)\}", self.target.table))
        if fields != {"database", "table"} or self.target.table.count(".") != 1:
            raise NotBuiltYet("target.table: only namespace.name with {database} and {table} in it is built yet")
        return self

    def below(self, folder: Path) -> Self:
        """The same with relative paths taken from `folder`."""
        target = self.target.model_copy(update={"warehouse": below(folder, self.target.warehouse)})
        tls, spark = self.source.tls, self.spark
        if tls.ca is not None:
            tls = tls.model_copy(update={"ca": folder / tls.ca})
        if isinstance(spark.jars, tuple):
            jars = tuple(jar if "://" in jar else str(folder / jar) for jar in spark.jars)
            spark = spark.model_copy(update={"jars": jars})
        source = self.source.model_copy(update={"tls": tls})
        state = below(folder, self.state)
        suites = below(folder, self.quality.suites or SUITES)
        quality = self.quality.model_copy(update={"suites": suites if self.quality.suites or suites.is_dir() else None})
        changed = {"source": source, "target": target, "state": state, "quality": quality, "spark": spark}
        return self.model_copy(update=changed)


def load_config(
    path: Path,
    overrides: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
    *,
    cluster: bool = False,
    offline: bool = False,
) -> Config:
    """Read pipeline.yml. `overrides` are `dotted.key=value`; ConfigError names the key, the variable or the file.

    `cluster`: for a Spark that is not here, so that warehouse and state are URIs. `offline`: for a command that does
    not ask the source, so that the variable of its password need not be set.
    """
    try:
        doc = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; -c FILE names another one") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(doc, dict):
        raise ConfigError(f"{path} holds no keys")
    for override in overrides:
        _set(doc, override)
    if offline and isinstance(doc.get("source"), dict):
        doc["source"].pop("password", None)
    return parse_config(doc, path.parent.resolve(), os.environ if environment is None else environment, cluster=cluster)


def parse_config(
    doc: Mapping[str, Any], folder: Path, environment: Mapping[str, str], *, cluster: bool = False
) -> Config:
    """Validate a document; relative paths are taken from `folder`."""
    filled = _fill(doc, environment)
    later = [key for key in _keys(filled) if any(fnmatch.fnmatchcase(key, pattern) for pattern in _NOT_BUILT)]
    refused = [f"{key.replace(_DOT, '.')} is not built yet; leave it out" for key in later]
    config = None
    try:
        config = Config.model_validate(_without(filled, later), context=cluster)
    except ValidationError as error:
        # what is wrong comes first: a key that is not built yet must not hide a typo
        if wrong := [_explain(detail) for detail in error.errors() if not _is_later(detail)]:
            raise ConfigError("; ".join([*wrong, *refused])) from None
        refused += [str(detail["ctx"]["error"]) for detail in error.errors()]
    if refused or config is None:
        raise NotBuiltYet("; ".join(refused))
    return config.below(folder)


def _set(doc: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals:
        raise ConfigError(f"--set {override}: wanted key=value")
    *parents, last = key.split(".")
    for parent in parents:
        doc = doc.setdefault(parent, {})
        if not isinstance(doc, dict):
            raise ConfigError(f"--set {override}: {parent} holds no keys")
    try:
        doc[last] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {override}: {' '.join(str(error).split())}") from error


def _fill(value: Any, environment: Mapping[str, str]) -> Any:
    """Replace ${VAR} and ${VAR:-default} in every string."""
    if isinstance(value, Mapping):
        return {key: _fill(item, environment) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, environment) for item in value]
    if not isinstance(value, str):
        return value

    def variable(found: re.Match[str]) -> str:
        text = environment.get(found["name"], found["default"])
        if text is None:
            raise ConfigError(f"the environment variable {found['name']} is not set, and has no default")
        return text

    return _VARIABLE.sub(variable, value)


def _keys(doc: Any, prefix: str = "") -> Iterable[str]:
    if isinstance(doc, Mapping):
        for key, value in doc.items():
            dotted = f"{prefix}.{str(key).replace('.', _DOT)}" if prefix else str(key)
            yield dotted
            yield from _keys(value, dotted)


def _without(doc: Any, keys: Collection[str], prefix: str = "") -> Any:
    """The document without some keys, which are dotted as `_keys` has them."""
    if not isinstance(doc, Mapping):
        return doc
    dotted = {key: f"{prefix}.{str(key).replace('.', _DOT)}" if prefix else str(key) for key in doc}
    return {key: _without(value, keys, dotted[key]) for key, value in doc.items() if dotted[key] not in keys}


def _is_later(detail: Any) -> bool:
    """Whether a value is refused only because it is not built yet."""
    return isinstance(detail.get("ctx", {}).get("error"), NotBuiltYet)


def _explain(detail: Any) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        known = _names_beside(detail["loc"])
        near = difflib.get_close_matches(str(detail["loc"][-1]), known, 1)
        return f"unknown key {where}" + (f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}")
    if detail["type"] == "missing":
        return f"{where} is required"
    return f"{where or 'pipeline.yml'}: {detail['msg']}"


def _names_beside(loc: tuple[Any, ...]) -> list[str]:
    """The keys that are known where an unknown one stands."""
    models: dict[str, type[BaseModel]] = {
        "": Config,
        "source": Source,
        "source.tls": Tls,
        "tables": Tables,
        "target": Target,
        "target.catalog": Catalog,
        "target.history": History,
        "quality": Quality,
        "spark": Spark,
        "submit": Submit,
        "submit.emr-serverless": EmrServerless,
    }
    parent = ".".join(str(part) for part in loc[:-1])
    return sorted(field.alias or name for name, field in models.get(parent, TableOptions).model_fields.items())
