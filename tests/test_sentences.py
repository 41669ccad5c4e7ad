"""Sentences of the code and the pages: errors that can be found, and words that a reader need not look back for."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "lakeingest").rglob("*.py"))
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "lakeingest").rglob("*.md")), ROOT / "README.md"]
ERRORS = set(re.findall(r"^class (\w+)\(", (ROOT / "lakeingest" / "errors.py").read_text(), re.MULTILINE))
MANY = 3

# Words that stand for a thing which the reader has to find: an old row, the current definition
PLACEHOLDERS = re.compile(r"\b(?:rows?|those|that|value|definition|copy|server|ones?) of (?:before|now)\b")

# A module in backquotes, and perhaps a name in it. `quality.…` and `spark.…` are keys of pipeline.yml as well.
PACKAGES = {path.parent.name for path in (ROOT / "lakeingest").glob("*/__init__.py")} - {"quality", "spark"}
REFERENCES = re.compile(rf"`((?:{'|'.join(sorted(PACKAGES))})(?:\.\w+)+)(?:\(\))?`")


def leads_nowhere(reference: str) -> bool:
    """Whether no file of the package has this dotted name."""
    place, names = ROOT / "lakeingest", reference.split(".")
    while names and (place / names[0]).is_dir():
        place /= names.pop(0)
    if names and (place / f"{names[0]}.py").exists():
        place /= f"{names.pop(0)}.py"
    return bool(names) and (place.is_dir() or not re.search(rf"\b{names[0]}\b", place.read_text()))


def unlisted(source: str) -> list[str]:
    """The functions whose docstring has three errors or more, and no block of them."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)) and "Raises:" not in text:
            named = ERRORS.intersection(re.findall(r"\w+", text))
            found += [f"{node.name}: {', '.join(sorted(named))}"] if len(named) >= MANY else []
    return found


def test_a_function_with_several_errors_lists_them() -> None:
    """In a block `Raises:`, which editors and readers find."""
    assert [f"{path}: {name}" for path in SOURCES for name in unlisted(path.read_text())] == []


def test_a_sentence_names_what_it_is_about() -> None:
    """Old rows, the current definition: not those of before, or of now."""
    texts = {path: " ".join(path.read_text().split()) for path in (*SOURCES, *PAGES)}
    assert [f"{path}: {words}" for path, text in texts.items() for words in PLACEHOLDERS.findall(text)] == []


def test_a_module_is_named_by_its_place() -> None:
    """So that an editor, or a stranger, finds it."""
    named = {path: REFERENCES.findall(path.read_text()) for path in SOURCES}
    assert [f"{path}: {one}" for path, all_named in named.items() for one in all_named if leads_nowhere(one)] == []


def test_each_rule_finds_a_sentence_that_breaks_it() -> None:
    """And passes one that keeps it."""
    assert unlisted('def f():\n    """SourceAway or BinlogGone where it is, SpoolGap else."""') == [
        "f: BinlogGone, SourceAway, SpoolGap"
    ]
    assert unlisted('def f():\n    """SourceAway, BinlogGone."""') == []
    assert PLACEHOLDERS.search("as the rows of before")
    assert not PLACEHOLDERS.search("the rows of a nowhere; of before")
    assert REFERENCES.findall("`core.proof` and `core.proofs.proof.Facts`") == ["core.proof", "core.proofs.proof.Facts"]
    assert [leads_nowhere(name) for name in ("core.proof", "core.proofs.proof.Facts", "core.proofs.proof.No")] == [
        True,
        False,
        True,
    ]
