"""Terraform on the modules of infra/: with the provider of Amazon where a machine has it, and with Google's schemas.

Terraform and its providers are in no package registry that an installation of ours uses. Where they are not there and
the registry of Terraform does not answer either, the tests are skipped by their names.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

MODULES = Path(__file__).parents[2] / "infra" / "terraform"
REGISTRY = "registry.terraform.io"
SECONDS = 900
# Where images keep providers for machines without internet, besides the folders in which Terraform itself looks
_MIRRORS = ("/opt/*", "/usr/local/share/*", "/usr/share/*")


def program() -> str:
    """Terraform's program; skips where there is none."""
    if found := shutil.which("terraform"):
        return found
    pytest.skip("terraform is not on PATH")


def _mirror() -> Path | None:
    """A folder with the provider of Amazon, as `terraform providers mirror` writes it."""
    found = (path for place in _MIRRORS for path in Path("/").glob(f"{place[1:]}/{REGISTRY}/hashicorp/aws"))
    return next((path.parents[2] for path in found), None)


@dataclass
class Terraform:
    """Terraform in a folder whose root module uses modules of ours. `variables` are of the environment."""

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def init(self) -> None:
        """Fetch what the modules require; skips where a provider cannot be had."""
        self.folder.mkdir(parents=True, exist_ok=True)
        mirror = _mirror()
        place = f'filesystem_mirror {{ path = "{mirror}" }}' if mirror else "direct {}"
        (self.folder / "rc").write_text(f"provider_installation {{ {place} }}\n")
        done = self._run("init", "-backend=false", "-input=false")
        if "Failed to query available provider packages" in done.stderr:
            pytest.skip(f"a provider of Terraform cannot be had: {done.stderr[-500:]}")
        assert done.returncode == 0, done.stderr

    def run(self, *words: str, fails: bool = False) -> str:
        """What a command prints, on both streams if it is to fail."""
        done = self._run(*words)
        assert (done.returncode != 0) == fails, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout + done.stderr if fails else done.stdout

    def resources(self, *words: str) -> dict[str, dict[str, Any]]:
        """The resources of the state, or of a plan, by their addresses in the module."""
        shown = json.loads(self.run("show", "-json", *words))
        values = shown.get("planned_values") or shown["values"]
        [module] = values["root_module"]["child_modules"]
        prefix = module["address"] + "."
        found = (one for one in module["resources"] if one["mode"] == "managed")
        return {one["address"].removeprefix(prefix).removesuffix("[0]"): one["values"] for one in found}

    def outputs(self) -> dict[str, Any]:
        """The outputs of the root module."""
        return {name: one["value"] for name, one in json.loads(self.run("output", "-json")).items()}

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        rest = {"TF_CLI_CONFIG_FILE": str(self.folder / "rc"), "CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"}
        command, *options = words
        plain = [] if command in {"show", "output"} else ["-no-color"]
        return subprocess.run(
            [program(), command, *plain, *options],
            cwd=self.folder,
            env={**os.environ, **rest, **self.variables},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
