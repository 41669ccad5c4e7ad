"""A page of its own, for a browser: it loads nothing, and is legible in light and dark mode, on any screen."""

import base64
import hashlib
from html import escape

from lakeingest.core.printable import printable
from lakeingest.drawing.table import SORT

# The colours of the page are the browser's own, which may be light or dark. Wide tables are moved within their frame.
_STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin-top: 2rem; }
p, summary, li { overflow-wrap: anywhere; }
svg { max-width: 100%; height: auto; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.85rem; }
.facts { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0.15rem 1rem; }
.facts dt { font-weight: 600; }
.facts dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
.wide > table { font-size: 0.9rem; width: max-content; }
.wide td { max-width: 20em; overflow-wrap: anywhere; }
.failed { color: #c62828; font-weight: 600; }
.passed { color: #2e7d32; font-weight: 600; }
@media (prefers-color-scheme: dark) { .failed { color: #ff8a80; } .passed { color: #81c784; } }
@media (max-width: 600px) { body { margin: 1rem auto; } .wide td { max-width: 12em; } }
"""


def page(title: str, body: str) -> str:
    """A page with this title and this body, which is HTML. The browser runs no script but the one that sorts tables."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{shown(title)}</title><style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )


def shown(text: object) -> str:
    """A text as HTML. It cannot add tags, or characters that change the direction of other texts."""
    return escape(printable(str(text)))


def wide(table: str) -> str:
    """A table in a frame. On a narrow screen, a reader can move the table sideways within the frame."""
    return f'<div class="wide">{table}</div>'


def _policy() -> str:
    """The rules for the browser: it loads nothing, and runs the script with this hash alone."""
    digest = base64.b64encode(hashlib.sha256(SORT.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-hashes' 'sha256-{digest}'"
