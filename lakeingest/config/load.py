"""pipeline.yml as frozen values. No other file says where the source, the catalog and the state are.

A documented key that this version does not have yet is refused, never ignored.
"""

import difflib
import fnmatch
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError, ValidationInfo, model_validator

from lakeingest.config.changelog import Changelog
from lakeingest.config.formats import FORMATS
from lakeingest.config.frozen import Frozen
from lakeingest.config.metrics import Metrics
from lakeingest.config.notify import Notify
from lakeingest.config.place import Place, unreachable_message
from lakeingest.config.points import Points
from lakeingest.config.quality import SUITES, Quality
from lakeingest.config.schema_changes import SchemaChanges
from lakeingest.config.secrets import is_reference, with_secrets
from lakeingest.config.shards import assert_target_table
from lakeingest.config.source import Source
from lakeingest.config.spark import MASTER, Spark, is_on_this_machine
from lakeingest.config.stores import store_of
from lakeingest.config.submit import Submit
from lakeingest.config.table_properties import FORMAT_VERSION
from lakeingest.config.tables import HistoryKind, TableOptions, Tables
from lakeingest.config.target import Target
from lakeingest.config.throttle import Throttle
from lakeingest.config.variables import VARIABLE, fill_variables
from lakeingest.config.yaml_mistake import yaml_mistake
from lakeingest.config.yaml_text import read_yaml
from lakeingest.errors import ConfigError, NotBuiltYet

_DOT = "\0"  # replaces a dot within a key while keys are joined by dots

_NOT_BUILT = {  # patterns of keys that this version does not have yet, and what to do
    "tables.options.*.chunk_key": (
        "a change is judged by the chunk that has its key, so tables are cut by their keys; leave it out, or name other"
        " columns that are unique and never NULL with `key`: then these tell the rows apart, and cut the table"
    ),
}


class Config(Frozen):
    """A whole pipeline.yml; all paths are absolute."""

    version: Literal[1] = 1
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    source: Source
    tables: Tables
    target: Target = Target()
    state: Place = Field(default="./state", validate_default=True)
    changelog: Changelog = Changelog()
    schema_changes: SchemaChanges = Field(default=SchemaChanges(), alias="schema")
    points: Points = Points()
    history: HistoryKind = "none"
    quality: Quality = Quality()
    throttle: Throttle = Throttle()
    metrics: Metrics = Metrics()
    notify: Notify = Notify()
    spark: Spark = Spark()
    submit: Submit = Submit()

    @property
    def evolves(self) -> bool:
        """Whether a copy continues after DDL of its table, because it follows the DDL or its rows are read again."""
        return self.schema_changes.changes != "freeze"

    @property
    def asks(self) -> bool:
        """Whether a copy follows DDL of its table only after a person has approved it."""
        return self.schema_changes.changes == "approve"

    @property
    def keeps_dropped(self) -> bool:
        """Whether a column that the source drops stays in the copy."""
        return self.schema_changes.dropped == "keep"

    @model_validator(mode="after")
    def _assert_built(self, info: ValidationInfo) -> Self:
        """Raise NotBuiltYet or ValueError for unusable values. `info.context` is True if Spark runs on a cluster."""
        lake, on_cluster = FORMATS[self.target.format], info.context
        catalogs = lake.cluster_catalogs if on_cluster else lake.catalogs
        if (kind := self.target.catalog.type or lake.catalogs[0]) not in catalogs:
            where, choices = " on a cluster" if on_cluster else "", ", ".join(map(str, catalogs))
            raise NotBuiltYet(f"target.catalog.type: {kind} is not built yet{where}; this version has {choices}")
        if self.changelog.table and self.target.format != "iceberg":
            raise NotBuiltYet(
                f"changelog.table: True is not built yet for {self.target.format}, whose commits would take longer the"
                " more changes the table has; `lakeingest changelog` gives the same rows"
            )
        if self.target.catalog.uri is not None and lake.by_folder and self.target.catalog.type != "hive":
            raise NotBuiltYet(
                f"target.catalog.uri: {self.target.format} tables in a catalog are not built yet, except of type hive;"
                " leave it out"
            )
        self._assert_stores_built()
        if not on_cluster:  # on a cluster, `Place` has refused folders of this machine
            self._assert_executors_reach_places()
        if self.target.warehouse.scheme is not None and not lake.by_folder and self.target.catalog.is_embedded:
            raise ValueError(
                f"target.warehouse: {self.target.warehouse}: the embedded catalog is a file of this machine; name"
                " another target.catalog, of type rest, or of type sql with a uri"
            )
        self._assert_form_of_copies()
        assert_target_table(self.target, self.tables, self.points, self.changelog, self.history, self.schema_changes)
        return self

    @model_validator(mode="after")
    def _assert_lag_has_replica(self) -> Self:
        """Raise ValueError for a limit of the replica's lag if no replica is named."""
        if self.throttle.replica_lag is not None and self.source.replica is None:
            raise ValueError("throttle.replica_lag is the lag of source.replica, which is not set")
        return self

    @model_validator(mode="after")
    def _assert_stores_fit(self) -> Self:
        """Raise ValueError for a key that a store lacks; for tables by folder, also if only the state is in a store."""
        lake = FORMATS[self.target.format]
        for key, place in (("target.warehouse", self.target.warehouse), ("state", self.state)):
            if place.scheme is not None:
                keys_of_store = {"properties", *store_of(place.scheme).only}
                for name in sorted(self.target.storage.model_fields_set - keys_of_store):  # only the first is named
                    raise ValueError(f"target.storage.{name}: {key} is on {place.scheme}://, which has no {name}")
        if lake.by_folder and self.state.scheme is not None and self.target.warehouse.scheme is None:
            raise ValueError(
                f"state: {self.state}: what {self.target.format} has not published yet is there, and Spark reads it as"
                " it reads the tables; put target.warehouse into the store, too"
            )
        return self

    def _assert_form_of_copies(self) -> None:
        """Raise NotBuiltYet for keys that the format does not have yet, ValueError for a location in a wrong store."""
        if self.tables.adopts and FORMATS[self.target.format].by_folder:
            raise NotBuiltYet(
                f"tables.startup: adopt is not built yet for {self.target.format}: tables of other tools have record"
                " keys and file groups of their own; copy the tables of the source under other names"
            )
        blocks: list[tuple[str, TableOptions | Target]] = [("target", self.target)]
        blocks += [(f"tables.options.{pattern}", options) for pattern, options in self.tables.options.items()]
        for where, block in blocks:
            keys = "properties", "location", "publish_together", "sort_by"
            missing = [key for key in keys if getattr(block, key, None)]  # None: a key that this block never has
            if FORMATS[self.target.format].by_folder and missing:
                raise NotBuiltYet(f"{where}.{missing[0]}: {self.target.format} tables do not have it yet; leave it out")
            if block.properties.get(FORMAT_VERSION) == "3" and self.target.way_of_merging == "statement":
                raise NotBuiltYet(
                    f"{where}.properties: {FORMAT_VERSION} 3 with target.merge: statement is not built yet; drop one"
                )
            location = block.location or ""
            if "://" in location and Place.of(location).scheme != self.target.warehouse.scheme:
                raise ValueError(f"{where}.location: it must be in the same kind of store as target.warehouse")

    def _assert_stores_built(self) -> None:
        """Raise NotBuiltYet for each folder in a kind of object store that this version cannot use."""
        stores = FORMATS[self.target.format].stores
        refused = []
        for key, place, schemes in (
            ("state", self.state, stores),
            ("quality.suites", self.quality.suites or SUITES, ()),
            ("target.warehouse", self.target.warehouse, stores),
        ):
            if place.scheme not in {None, *schemes}:
                usable = ", ".join(["folders of this machine", *(f"{scheme}://" for scheme in schemes)])
                refused.append(f"{key}: {place} is not built yet; this version has {usable}")
        if refused:
            raise NotBuiltYet("; ".join(refused))

    def _assert_executors_reach_places(self) -> None:
        """Raise ValueError if Spark's tasks run on other machines, but state or warehouse is on this machine."""
        master, places = self.spark.master, self.on_this_machine
        if master is not None and not is_on_this_machine(master) and places:
            raise ValueError(f"spark.conf: with {MASTER} {master} {unreachable_message(places)}")

    @property
    def on_this_machine(self) -> tuple[str, ...]:
        """The state and the warehouse, as far as they are folders of this machine: texts of the form `key (folder)`."""
        places = {"state": self.state, "target.warehouse": self.target.warehouse}
        return tuple(f"{key} ({place})" for key, place in places.items() if place.scheme is None)

    def below(self, folder: Path) -> Self:
        """The same configuration with absolute paths: relative paths are taken from `folder`."""
        target = self.target.model_copy(update={"warehouse": self.target.warehouse.below(folder)})
        spark = self.spark
        if isinstance(spark.jars, tuple):
            jars = tuple(jar if "://" in jar else str(folder / jar) for jar in spark.jars)
            spark = spark.model_copy(update={"jars": jars})
        ssh = None if self.source.ssh is None else self.source.ssh.below(folder)
        source = self.source.model_copy(update={"tls": self.source.tls.below(folder), "ssh": ssh})
        source = source.with_hash_key(self.tables.secret)
        state = self.state.below(folder)
        changed = {"source": source, "target": target, "state": state, "spark": spark}
        changed |= {"quality": self.quality.below(folder), "metrics": self.metrics.below(folder)}
        if self.target.is_shared:
            changed["tables"] = self.tables.sharing()
        return self.model_copy(update=changed)


def load_config(
    path: Path,
    overrides: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
    *,
    cluster: bool = False,
    offline: bool = False,
) -> Config:
    """Read pipeline.yml.

    `overrides` have the form `dotted.key=value`. The default `environment` is that of this process. `cluster`: Spark
    runs on a cluster, so warehouse and state must be URIs. `offline`: the command does not ask the source, so
    `source.password` and `tables.hash_key` are left out, and their variables need not be set.

    Raises the errors of `parse_config`. A ConfigError names the key, the variable or the file with the mistake.
    """
    doc = read_document(path, overrides)
    unneeded = (("source", "password"), ("tables", "hash_key")) if offline else ()
    for block, key in unneeded:
        if isinstance(doc.get(block), dict):
            doc[block].pop(key, None)
    return parse_config(doc, path.parent.resolve(), os.environ if environment is None else environment, cluster=cluster)


def read_document(path: Path, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """The document in a pipeline.yml, with overrides. Raises ConfigError if the file is unreadable or has no keys."""
    try:
        doc = read_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; -c FILE names another file") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {yaml_mistake(error)}") from None
    if not isinstance(doc, dict):
        raise ConfigError(f"{path} holds no keys")
    for override in overrides:
        _apply_override(doc, override)
    return doc


def parse_config(
    doc: Mapping[str, Any], folder: Path, environment: Mapping[str, str], *, cluster: bool = False
) -> Config:
    """The configuration in a document. Relative paths are taken from `folder`.

    Secrets to which the document refers are fetched, unless `cluster` is True: then the job fetches them. Raises
    ConfigError for mistakes, NotBuiltYet for what is not built yet, and the errors of `with_secrets`.
    """
    filled = fill_variables(doc, environment)
    return _validate_filled(filled if cluster else with_secrets(filled), cluster=cluster).below(folder)


def validate(doc: Mapping[str, Any], folder: Path) -> Config | None:
    """The configuration in a document, validated without reading variables or secrets.

    None if only the value of a variable decides whether the document is right, for example where a key needs a number.
    Raises ConfigError for mistakes in values without variables, NotBuiltYet for what is not built yet.
    """
    filled = fill_variables(doc, _UnreadEnvironment())
    try:
        return _validate_filled(filled, unread=True).below(folder)
    except _DependsOnVariable:
        return None


def references(doc: Mapping[str, Any]) -> tuple[str, ...]:
    """The values of a document that have a variable or refer to a secret, as texts of the form `dotted.key: value`."""
    texts = [(key.replace(_DOT, "."), text) for key, text in _dotted_texts(doc)]
    return tuple(f"{key}: {text}" for key, text in texts if is_reference(text) or VARIABLE.search(text))


class _UnreadEnvironment(dict[str, str]):
    """Stands for an environment that must not be read: a variable has its default, or else the text `${NAME}`."""

    def get(self, name: str, default: Any = None) -> Any:
        return f"${{{name}}}" if default is None else default


class _DependsOnVariable(Exception):
    """The document is right or wrong depending on the value of a variable that was not read."""


def _validate_filled(filled: Mapping[str, Any], *, cluster: bool = False, unread: bool = False) -> Config:
    """The configuration of a document after `fill_variables`. `unread`: its environment was `_UnreadEnvironment`.

    Raises:
        ConfigError: the document has mistakes.
        NotBuiltYet: it has no mistakes, but keys or values that are not built yet.
        _DependsOnVariable: with `unread`, only values with a variable are refused, and they may be right in a run.

    """
    keys = [*_dotted_keys(filled)]
    unbuilt = {key: advice for pattern, advice in _NOT_BUILT.items() for key in fnmatch.filter(keys, pattern)}
    not_built = [f"{key.replace(_DOT, '.')} is not built yet: {advice}" for key, advice in unbuilt.items()]  # messages
    config = None
    try:
        config = Config.model_validate(_without_keys(filled, unbuilt), context=cluster)
    except ValidationError as error:
        # with `unread`, a value with a variable may be right once the variable is read
        details = [detail for detail in error.errors() if not (unread and _has_variable(detail))]
        # mistakes are raised first: a key that is not built yet must not hide a typo
        if mistakes := [_mistake_text(detail) for detail in details if not _is_not_built(detail)]:
            raise ConfigError("; ".join([*mistakes, *not_built])) from None
        if not details:  # all refused values have variables in them
            raise _DependsOnVariable from None
        # the remaining details are values that are not built yet
        not_built += [str(detail["ctx"]["error"]) for detail in details]
    if not_built or config is None:  # `config` is None only if there are messages
        raise NotBuiltYet("; ".join(not_built))
    return config


def _apply_override(doc: dict[str, Any], override: str) -> None:
    """Put an override of the form `dotted.key=value` into the document. Raises ConfigError for any other form."""
    key, equals, value = override.partition("=")
    if not equals:
        raise ConfigError("--set: wanted key=value")
    *parents, last = key.split(".")
    block = doc
    for parent in parents:
        block = block.setdefault(parent, {})
        if not isinstance(block, dict):
            raise ConfigError(f"--set {key}: {parent} holds no keys")
    try:
        block[last] = read_yaml(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {key}: the value is not YAML: {yaml_mistake(error)}") from None


def _dotted_texts(doc: Any, prefix: str = "") -> Iterable[tuple[str, str]]:
    """Yield (key, text) for each text in a document, keys as in `_dotted_keys`. A text in a list has the list's key."""
    if isinstance(doc, Mapping):
        for key, value in doc.items():
            yield from _dotted_texts(value, f"{prefix}.{str(key).replace('.', _DOT)}".lstrip("."))
    elif isinstance(doc, list):
        for value in doc:
            yield from _dotted_texts(value, prefix)
    elif isinstance(doc, str):
        yield prefix, doc


def _dotted_keys(doc: Any, prefix: str = "") -> Iterable[str]:
    """All keys of a document, each with the keys above it, joined by dots. `_DOT` replaces a dot within a key."""
    if isinstance(doc, Mapping):
        for key, value in doc.items():
            dotted = f"{prefix}.{str(key).replace('.', _DOT)}" if prefix else str(key)
            yield dotted
            yield from _dotted_keys(value, dotted)


def _without_keys(doc: Any, keys: Collection[str], prefix: str = "") -> Any:
    """The document without `keys`, which are written as `_dotted_keys` writes them. `prefix` is the key of `doc`."""
    if not isinstance(doc, Mapping):
        return doc
    dotted = {key: f"{prefix}.{str(key).replace('.', _DOT)}" if prefix else str(key) for key in doc}
    return {key: _without_keys(value, keys, dotted[key]) for key, value in doc.items() if dotted[key] not in keys}


def _is_not_built(detail: Any) -> bool:
    """Whether a validator has refused a value because the value is not built yet."""
    return isinstance(detail.get("ctx", {}).get("error"), NotBuiltYet)


def _has_variable(detail: Any) -> bool:
    """Whether the refused value has an unread variable in it; False if the mistake is a missing or an unknown key."""
    return detail["type"] not in {"missing", "extra_forbidden"} and VARIABLE.search(str(detail["input"])) is not None


def _mistake_text(detail: Any) -> str:
    """The text of a mistake that pydantic has found, with the dotted key."""
    where = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        names = _known_names(detail["loc"])
        near = difflib.get_close_matches(str(detail["loc"][-1]), names, 1)
        return f"unknown key {where}" + (f"; did you mean {near[0]}?" if near else f"; known are {', '.join(names)}")
    if detail["type"] == "missing":
        return f"{where} is required"
    return f"{where or 'pipeline.yml'}: {detail['msg']}"


def _known_names(loc: Sequence[Any]) -> list[str]:
    """The keys that the block of an unknown key can have. `loc` is the path of the unknown key."""
    model: type[BaseModel] = Config
    for part in loc[:-1]:  # a part without a model of its own, such as a pattern of tables.options, is passed over
        fields = [field for name, field in model.model_fields.items() if part in {name, field.alias}]
        model = next((inner for field in fields for inner in _models(field.annotation)), model)
    return sorted(field.alias or name for name, field in model.model_fields.items())


def _models(annotation: Any) -> Iterable[type[BaseModel]]:
    """The pydantic models in a type, such as `Tls` in `Tls | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
