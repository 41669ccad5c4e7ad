"""Reads YAML of authors who may be hostile, within limits of memory and time."""

from typing import Any

import yaml

_SIGNS, _NODES, _LEVELS = 8 << 20, 1_000_000, 40  # a suite may list the values that a column takes


def read_yaml(text: str) -> Any:
    """The document in a text. YAMLError if it is not YAML, or larger than the limits.

    A few aliases (`*a`) can stand for more values than there is memory for, or for a value within itself.
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
    waiting, count = [(node, 1)], 0
    while waiting:
        one, level = waiting.pop()
        count += 1
        if level > _LEVELS or count > _NODES:
            raise _too_much(one.start_mark)
        inner = [part for pair in one.value for part in pair] if isinstance(one, yaml.MappingNode) else one.value
        if isinstance(inner, list):
            waiting += [(part, level + 1) for part in inner]
    return loader.construct_document(node)


def _too_much(mark: yaml.Mark) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(problem=f"more than {_LEVELS} levels or {_NODES:,} values", problem_mark=mark)


def _start(text: str) -> yaml.Mark:
    return yaml.Mark("", 0, 0, 0, text, 0)
