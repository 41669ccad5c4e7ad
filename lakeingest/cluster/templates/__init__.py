"""Templates for the services that run jobs. `infra/` has links to them; `submit --init` fills them in."""

from importlib import resources
from typing import Any

import yaml

OPEN = "?"  # a value that only a person knows


def template(name: str) -> str:
    """The text of a template, such as `aws/schedule.yml`."""
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def template_document(name: str) -> dict[str, Any]:
    """The document in a template of YAML or JSON. Templates of CloudFormation have tags, so they are only texts."""
    found: dict[str, Any] = yaml.safe_load(template(name))
    return found
