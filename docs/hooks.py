"""What MkDocs needs for files outside of docs/: pages link to them as a forge shows them, and the site copies them."""

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
    """Let links lead to where the site has these files."""
    for folder, (name, _pattern) in FOLDERS.items():
        markdown = re.sub(rf"\]\(((?:\.\./)*)\.\./{folder}/", rf"](\g<1>{name}/", markdown)
    return markdown
