"""Words of the glossary that had several meanings in the code have one: only some modules define names with them."""

import ast
import re

import pytest

from tests.test_docs import PAGES
from tests.test_layers import SOURCES, nodes

# The stem of a word of the glossary, and the modules that may define functions, classes and fields with it
PLACES = {
    "settle": (
        "mysql.xa_list",
        "mysql.chunk_reader",
        "mysql.binlog_source",
        "pipeline.binlog.watermarks",
        "pipeline.copying.tasks",
        "pipeline.rereads.tasks",
    ),
    "halt": ("spool.halts", "pipeline.schema.lifting"),
    "lift": (
        "core.ddl.alteration",
        "core.ddl.lift",
        "core.companions.log_columns",
        "core.copies.phases",
        "core.copies.progress",
        "core.waves.splits",
        "lake.",
        "pipeline.companions",
        "pipeline.events",
        "pipeline.joining",
        "pipeline.run.table_run",
        "pipeline.schema.lifting",
    ),
}


def defined(name: str, source: str) -> set[str]:
    """The functions, classes and annotated fields of a module."""
    found = set()
    for node in nodes(source, name):
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.AnnAssign(target=ast.Name(id=field)):
                found.add(field)
    return found


def elsewhere(stem: str, name: str, source: str) -> list[str]:
    """The definitions of a module with a word that belongs to other modules."""
    if name.removeprefix("lakeingest.").startswith(PLACES[stem]):
        return []
    return [f"{name}.{one}" for one in defined(name, source) if re.search(rf"(^|_){stem}", one, re.IGNORECASE)]


@pytest.mark.parametrize("stem", PLACES)
def test_a_word_has_one_meaning(stem: str) -> None:
    """It is in the glossary, and no other module defines a name with it."""
    assert re.search(rf"^\| {stem}", PAGES["docs/glossary.md"], re.MULTILINE)
    assert [wrong for name, source in SOURCES.items() for wrong in elsewhere(stem, name, source)] == []


def test_a_word_in_another_place_is_found() -> None:
    """As a function, a class and a field."""
    source = "class Settled:\n    is_settled: bool\ndef settle():\n    pass\n"
    assert len(elsewhere("settle", "lakeingest.lake.hudi.folder", source)) == 3
    assert elsewhere("settle", "lakeingest.mysql.xa_list", source) == []
