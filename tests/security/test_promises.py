"""SECURITY.md promises nothing that no test holds."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text()
_MARK = r"\[\[(\d+)\]\]"
NAMED = {number: (file, test) for number, file, test in re.findall(r'(?m)^\[(\d+)\]: (\S+) "(\w+)"$', TEXT)}


def test_each_promise_names_a_test() -> None:
    """Each item of each part below the first heading, with nothing said after its last mark."""
    parts = TEXT.partition("## Who is trusted")[2].partition("## What a server proves")[0]
    promises = [one.replace("\n", " ").strip() for one in re.findall(r"(?ms)^- (.*?)(?=^- |^$)", parts)]
    assert len(promises) > 20
    assert [one for one in promises if not re.search(rf"[.:] ({_MARK} ?)+$", one)] == []


def test_each_kind_of_connection_names_a_test() -> None:
    """All but those that prove nothing and get nothing."""
    rows = re.findall(r"(?m)^\| (.+) \|$", TEXT)[2:]
    assert len(rows) > 5
    assert [one for one in rows if not re.search(_MARK, one) and "no secret" not in one] == []


def test_each_test_that_is_named_exists() -> None:
    """A file has a test of that name; every number is used, and leads to one."""
    assert set(re.findall(_MARK, TEXT)) == NAMED.keys()
    for file, test in NAMED.values():
        tree = ast.parse((ROOT / file).read_text())
        assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (file, test)
