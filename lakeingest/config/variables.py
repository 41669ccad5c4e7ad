"""Variables of the environment in pipeline.yml: `${NAME}`, and `${NAME:-default}`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lakeingest.errors import ConfigError

VARIABLE = re.compile(r"\$\{(?P<name>\w+)(:-(?P<default>[^}]*))?\}")


def fill_variables(value: Any, environment: Mapping[str, str]) -> Any:
    """The value with each ${VAR} and ${VAR:-default} in it replaced. Raises ConfigError if a variable has no value."""
    if isinstance(value, Mapping):
        return {key: fill_variables(item, environment) for key, item in value.items()}
    if isinstance(value, list):
        return [fill_variables(item, environment) for item in value]
    if not isinstance(value, str):
        return value

    def value_of(variable: re.Match[str]) -> str:
        """The value of a variable, even if empty; its default if it is unset. Raises ConfigError if it has neither."""
        text = environment.get(variable["name"], variable["default"])
        if text is None:
            raise ConfigError(f"the environment variable {variable['name']} is not set, and has no default")
        return text

    return VARIABLE.sub(value_of, value)


def names_of_variables(value: Any) -> list[str]:
    """The names of the variables in a value, each once, in order."""
    return list(dict.fromkeys(_names(value)))


def _names(value: Any) -> Iterator[str]:
    """Yield the name of each variable in a value. If it is a mapping or a list, the values in it are searched."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _names(item)
    elif isinstance(value, str):
        yield from (variable["name"] for variable in VARIABLE.finditer(value))
