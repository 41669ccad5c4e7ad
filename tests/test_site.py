"""The site: every page is in the menu, every link leads somewhere, and a browser asks nobody else for anything."""

import html.parser
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.servers.browser import browser
from tests.test_docs import PAGES, ROOT, RUNBOOKS, script

SETTINGS = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
# Attributes by which a browser fetches something without a click
FETCHES = {("img", "src"), ("link", "href"), ("script", "src"), ("source", "src"), ("iframe", "src"), ("use", "href")}


def test_every_page_is_in_the_menu(tmp_path: Path) -> None:
    """Once, the runbooks too; and the menu has no page that is not there."""
    module = script("gather")
    module.gather(tmp_path)
    pages = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md"))
    parts = [part for parts in SETTINGS["nav"] for part in parts.items()]
    assert sorted(page for title, entry in parts for _, page in module.menu(title, entry)) == pages
    assert len(pages) == len(PAGES) + len(RUNBOOKS) + 3  # the list of runbooks, the templates, the changelog


def test_the_site_has_the_folder_that_is_gathered() -> None:
    """Or Zensical would build an older one."""
    assert ROOT / SETTINGS["docs_dir"] == script("gather").GATHERED


def test_a_page_is_changed_for_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its links lead to where the site has the files; items have four spaces, and none is lost in the one before.

    Code stays, without exit codes.
    """
    text = (
        "[a](../../lakeingest/runbooks/LeaseHeld.md#way-out), ![b](../../benchmarks/measured/scale.png)\n"
        "[c](../../infra/README.md), [d](https://example.com/docs/x.md), [e](verify.md), [f](#here)\n"
        "1. One\n\n   ```sh exit=3\n   lakeingest run\n   ```\n\n```sh exit=1\n   x [g](../../infra/README.md)\n```\n\n"
        "1. One\n   goes on.\n2. Two\n\n   A paragraph\n   of it.\n3. Three\n"
    )
    module, place = script("gather"), Path("howto/page.md")
    path = tmp_path / "docs" / place
    path.parent.mkdir(parents=True)
    path.write_text(text)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    assert module.for_site(path, place) == (
        "[a](../runbooks/LeaseHeld.md#way-out), ![b](../measured/scale.png)\n"
        "[c](../infra/README.md), [d](https://example.com/docs/x.md), [e](verify.md), [f](#here)\n"
        "1. One\n\n    ```sh\n    lakeingest run\n    ```\n\n```sh\n   x [g](../../infra/README.md)\n```\n\n"
        "1. One\n    goes on.\n2. Two\n\n    A paragraph\n    of it.\n\n3. Three\n"
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it, in another folder."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    script("gather").gather(folder / SETTINGS["docs_dir"])
    build = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "arning" not in done.stdout + done.stderr
    return folder / str(SETTINGS["site_dir"])


class _Fetched(html.parser.HTMLParser):
    """What a browser fetches for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.urls += [value or "" for name, value in attrs if (tag, name) in FETCHES]


def test_the_site_is_built_without_a_warning(site: Path) -> None:
    """Zensical takes every page, link and anchor, and the site has the runbooks, pictures and templates."""
    assert {path.name for path in (site / "runbooks").iterdir() if path.is_dir()} == RUNBOOKS.keys()
    page = (site / "troubleshooting" / "index.html").read_text()
    assert 'href="../runbooks/SourceAway/"' in page
    assert (site / "measured" / "batches-table.png").is_file()
    assert (site / "infra" / "monitoring" / "alerts.yml").is_file()
    pages = list(site.rglob("index.html"))
    assert len(pages) > len(PAGES) + len(RUNBOOKS)
    assert [path for path in pages if "```" in path.read_text()] == []


class _Items(html.parser.HTMLParser):
    """How many items the numbered lists of a page have, and its other lists."""

    def __init__(self) -> None:
        super().__init__()
        self._lists: list[str] = []
        self.counts = Counter[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"ol", "ul"}:
            self._lists.append("menu" if attrs else tag)  # lists of pages have no attributes, those of the theme do
        elif tag == "li":
            self.counts[self._lists[-1]] += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in {"ol", "ul"}:
            self._lists.pop()


def test_no_item_of_a_list_is_lost_in_a_paragraph(site: Path) -> None:
    """A number that is no item is read as text, and the numbers after it are wrong. So runbooks lost steps."""
    gathered, numbered = site.parent / "pages", 0
    for path in sorted(gathered.rglob("*.md")):
        page = path.relative_to(gathered).with_suffix("")
        text = re.sub("(?ms)^ *```.*?^ *```$", "", path.read_text())
        shown = (site / (page.parent if page.name in {"index", "README"} else page) / "index.html").read_text()
        items = _Items()
        items.feed(shown[shown.index("<article") : shown.index("</article>")])
        written = len(re.findall(r"(?m)^ *\d+\. ", text)), len(re.findall("(?m)^ *- ", text))
        assert (items.counts["ol"], items.counts["ul"]) == written, page
        numbered += written[0]
    assert numbered > len(RUNBOOKS)


def test_programs_find_every_page(site: Path) -> None:
    """`llms.txt` leads to all of them."""
    listed = re.findall(r"^- \[.+\]\((.+)\)$", (site / "llms.txt").read_text(), re.MULTILINE)
    assert {site / url / "index.html" for url in listed} == set(site.rglob("index.html"))


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    """Neither fonts nor scripts, styles or pictures: the site works without a network, and tells nobody who reads."""
    pages = list(site.rglob("index.html"))
    assert pages
    for path in pages:
        parser = _Fetched()
        parser.feed(path.read_text())
        assert parser.urls
        for url in parser.urls:
            assert not re.match(r"(https?:)?//", url), f"{path}: {url}"
            file = path.parent / url.partition("?")[0].partition("#")[0]
            assert url.startswith(("#", "data:")) or file.exists(), f"{path}: {url}"
    styles = "\n".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"url\([\"']?(?:https?:)?//[^)]*|@import[^;]*", styles) == []


@pytest.mark.long("a browser shows each page twice")
@pytest.mark.parametrize("width", [1_280, 400])
def test_no_page_is_wider_than_its_window(site: Path, width: int) -> None:
    """On a screen and on a telephone: wide tables and code scroll within themselves. Nothing comes from elsewhere."""
    wide, elsewhere = [], []
    page = "document.documentElement"
    with browser() as tab:
        for path in sorted(site.rglob("index.html")):
            tab.open(path, width)
            if tab.value(f"{page}.scrollWidth") > tab.value(f"{page}.clientWidth"):
                wide.append(str(path.relative_to(site)))
            elsewhere += [url for url in tab.requests if not url.startswith(("file:", "data:", "blob:"))]
    assert wide == []
    assert elsewhere == []
