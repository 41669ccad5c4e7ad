"""Reads YAML whose author may be hostile: limits keep a document from using too much memory or time."""

from typing import Any

import yaml

# The limits of a document. They are large, because a suite of expectations may list all values of a column.
_MAX_CHARACTERS, _MAX_NODES, _MAX_LEVELS = 8 << 20, 1_000_000, 40


def read_yaml(text: str) -> Any:
    """The document in a text. Raises YAMLError if the text is not YAML, or exceeds a limit.

    Each alias (`*a`) counts as all values that it stands for. Otherwise a short text with a few aliases could stand for
    more values than fit into memory, or for a value that contains itself.
    """
    if len(text) > _MAX_CHARACTERS:
        raise yaml.MarkedYAMLError(problem=f"more than {_MAX_CHARACTERS:,} signs", problem_mark=_start(text))
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        return None if node is None else _construct(loader, node)
    except RecursionError as error:
        raise _limit_error(loader.get_mark()) from error
    finally:
        loader.dispose()


def _construct(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    """Count the nodes of a document, and of all its aliases; then build the document.

    Raises YAMLError if there are too many nodes or levels.
    """
    uncounted = [(node, 1)]  # nodes with their levels
    node_count = 0
    while uncounted:
        part, level = uncounted.pop()
        node_count += 1
        if level > _MAX_LEVELS or node_count > _MAX_NODES:
            raise _limit_error(part.start_mark)
        children = part.value
        if isinstance(part, yaml.MappingNode):
            children = [key_or_value for pair in part.value for key_or_value in pair]
        if isinstance(children, list):  # the value of any other node is a text
            uncounted += [(child, level + 1) for child in children]
    return loader.construct_document(node)


def _limit_error(mark: yaml.Mark) -> yaml.YAMLError:
    """The error for a document that exceeds a limit at this mark."""
    return yaml.MarkedYAMLError(problem=f"more than {_MAX_LEVELS} levels or {_MAX_NODES:,} values", problem_mark=mark)


def _start(text: str) -> yaml.Mark:
    """The mark of the first line and column of a text."""
    return yaml.Mark("", 0, 0, 0, text, 0)
