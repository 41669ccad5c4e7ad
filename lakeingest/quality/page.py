"""The page of a gate: table, stage, time, rows, and what came of each expectation. It takes nothing from a network."""

from datetime import datetime
from html import escape

from lakeingest.core.schema import TableId
from lakeingest.quality.gates import GateReport, Outcome

# a browser that obeys it fetches nothing at all
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
# colours are the reader's own, so that it is legible on light and on dark
_STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid rgba(128, 128, 128, 0.35); padding: 4px 12px 4px 0; text-align: left; }
th, td { overflow-wrap: anywhere; vertical-align: top; }
.failed { color: #c62828; font-weight: 600; }
"""


def page(table: TableId, stage: str, at: datetime, rows: int, report: GateReport) -> str:
    """The report as HTML; failures first, each with how many rows it fails on, and some of these by their keys."""
    order = sorted(report.outcomes, key=lambda one: (one.success, not one.stops))
    failed = len(report.failures)
    verdict = f"{failed} of {len(order)} expectations failed" if failed else f"passed: {len(order)} expectations"
    facts = {
        "table": str(table),
        "stage": stage,
        "time": at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        "rows": f"{rows:,}",
        "result": verdict + (f", {len(report.warnings)} warnings" if report.warnings else ""),
    }
    headers = ("result", "suite", "expectation", "arguments", "rows that fail", "samples")
    title = f"{table}: gate {stage}: {verdict}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"<table>{''.join(f'<tr><th>{name}</th><td>{escape(fact)}</td></tr>' for name, fact in facts.items())}</table>"
        f"<h2>Expectations</h2><table><tr>{''.join(f'<th>{name}</th>' for name in headers)}</tr>"
        f"{''.join(map(_row, order))}</table></body></html>\n"
    )


def _row(one: Outcome) -> str:
    verdict = "passed" if one.success else "failed" if one.stops else "warning"
    arguments = ", ".join(f"{name}={value}" for name, value in one.document["kwargs"].items())
    found = "" if one.unexpected is None else f"{one.unexpected:,}"
    if one.error is not None:
        found = f"cannot be evaluated: {one.error}"
    elif not one.success and one.unexpected is None:
        found = f"observed {one.observed}"
    cells = (one.suite, one.document["type"], arguments, found)
    samples = "<br>".join(map(escape, one.examples))
    return (
        f'<tr><td class="{verdict}">{verdict}</td>'
        f"{''.join(f'<td>{escape(str(cell))}</td>' for cell in cells)}<td>{samples}</td></tr>"
    )
