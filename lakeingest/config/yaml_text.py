"""Reads YAML of authors who may be hostile, within limits of memory and time."""

from typing import Any

import yaml

_SIGNS, _NODES, _LEVELS = 8 << 20, 1_000_000, 40  # a suite may list the values that a column takes


def read_yaml(text: str) -> Any:
    """The document in a text. Raises YAMLError if it is not YAML, or larger than the limits.

    The limits count the values that aliases (`*a`) stand for: a few of them may stand for more values than there is
    memory for, or for a value within itself.
    """
    if len(text) > _SIGNS:
        raise yaml.MarkedYAMLError(problem=f"more than {_SIGNS:,} signs", problem_mark=_start(text))
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        return None if node is None else _built(loader, node)
    except RecursionError as error:
        raise _too_much(loader.get_mark()) from error
    finally:
        loader.dispose()


def _built(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    """The document of a node, once its nodes are counted; the count follows aliases."""
    waiting, count = [(node, 1)], 0
    while waiting:
        part, level = waiting.pop()
        count += 1
        if level > _LEVELS or count > _NODES:
            raise _too_much(part.start_mark)
        inner = part.value
        if isinstance(part, yaml.MappingNode):
            inner = [key_or_value for pair in part.value for key_or_value in pair]
        if isinstance(inner, list):
            waiting += [(child, level + 1) for child in inner]
    return loader.construct_document(node)


def _too_much(mark: yaml.Mark) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(problem=f"more than {_LEVELS} levels or {_NODES:,} values", problem_mark=mark)


def _start(text: str) -> yaml.Mark:
    return yaml.Mark("", 0, 0, 0, text, 0)
