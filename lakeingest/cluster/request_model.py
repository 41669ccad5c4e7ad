"""Checks requests to services of AWS without a network, against the models in AWS's own client."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lakeingest.config.amazon import EXTRA
from lakeingest.errors import ConfigError, OperatorNeeded


def assert_accepted(service: str, operation: str, request: Mapping[str, Any], keys: Mapping[str, str]) -> None:
    """Raise ConfigError if the service would refuse the request.

    `keys` has the key of pipeline.yml for some parameters of the request. The message names the keys of the wrong
    parameters. Raises OperatorNeeded if AWS's client is not installed.
    """
    try:
        from botocore.session import Session  # type: ignore[import-untyped]
        from botocore.validate import ParamValidator  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise OperatorNeeded(f"{error}: {EXTRA}") from error

    shape = Session().get_service_model(service).operation_model(operation).input_shape
    report = ParamValidator().validate(request, shape)
    faults = report.generate_report().splitlines() if report.has_errors() else list(_unmet_forms(shape, request))
    if faults:
        reasons = "; ".join(faults)
        wrong_keys = " and ".join(key for parameter, key in keys.items() if parameter in reasons)
        raise ConfigError(f"{wrong_keys or 'the job'}: {operation} takes no such request: {reasons}")


def _unmet_forms(shape: Any, request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults that botocore's validator does not find: texts that are too long or have a wrong form."""
    for at, form, text in _texts(shape, request, ""):
        if "max" in form and len(text) > form["max"]:
            yield f"{at.lstrip('.')} is longer than {form['max']}"
        elif "pattern" in form and not _matches(form["pattern"], text):
            yield f"{at.lstrip('.')} is not of the form {form['pattern']}"


def _matches(pattern: str, text: str) -> bool:
    """Whether the text has the form of a pattern of the model, which is written for Java."""
    try:
        return re.fullmatch(pattern, text, re.DOTALL) is not None
    except re.error:  # a pattern of Java that Python does not understand; the service checks the text
        return True


def _texts(shape: Any, value: Any, at: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yield for each text of a request its path, the form that the model prescribes, and the text itself."""
    match shape.type_name:
        case "string":
            yield at, shape.metadata, value
        case "structure":
            for name, member in value.items():
                yield from _texts(shape.members[name], member, f"{at}.{name}")
        case "list":
            for member in value:
                yield from _texts(shape.member, member, at)
        case "map":
            for key, member in value.items():
                yield at, shape.key.metadata, key
                yield from _texts(shape.value, member, f"{at}.{key}")
