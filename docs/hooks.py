"""What makes a site of pages that are written for a forge.

Pages link to runbooks and pictures outside of docs/, and the site has copies of them. Items of numbered lists are
indented by three spaces, and Python-Markdown wants four.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# folders of the repository that the site has, too, and the pages and pictures that it takes from them
FOLDERS = {"lakeingest/runbooks": ("runbooks", "*.md"), "benchmarks/measured": ("measured", "*.png")}


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the files of these folders to the site."""
    for folder, (name, pattern) in FOLDERS.items():
        for path in sorted((ROOT / folder).glob(pattern)):
            files.append(File.generated(config, f"{name}/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links lead to where the site has these files, and indent the items of lists as Python-Markdown wants it."""
    for folder, (name, _pattern) in FOLDERS.items():
        markdown = re.sub(rf"\]\(((?:\.\./)*)\.\./{folder}/", rf"](\g<1>{name}/", markdown)
    markdown = re.sub(r"(?m)^( *```sh) exit=\d+$", r"\1", markdown)  # the exit code is for the tests
    parts = re.split(r"(?ms)^(```.*?^```$)", markdown)  # code that is no part of a list stays as it is
    return "".join(part if part.startswith("```") else re.sub("(?m)^   (?=.)", " " * 4, part) for part in parts)
