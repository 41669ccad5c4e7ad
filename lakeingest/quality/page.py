"""The HTML page of a gate's report. A browser that shows the page loads nothing from a network."""

from datetime import datetime
from html import escape

from lakeingest.core.printable import printable
from lakeingest.core.tables.schema import TableId
from lakeingest.quality.gates import GateReport, Outcome

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # forbids the browser to load anything
# The browser's own colours, so that the page is legible in light and in dark mode
_STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid rgba(128, 128, 128, 0.35); padding: 4px 12px 4px 0; text-align: left; }
th, td { overflow-wrap: break-word; vertical-align: top; }
.wide { overflow-wrap: anywhere; }
.failed { color: #c62828; font-weight: 600; }
"""


def page(table: TableId, stage: str, at: datetime, rows: int, report: GateReport) -> str:
    """The report as HTML: the facts of the gate, then a row for each outcome, first failures, then warnings.

    `stage` is the name of the gate, `at` its time, and `rows` the number of checked rows.
    """
    outcomes = sorted(report.outcomes, key=lambda outcome: (outcome.success, not outcome.stops))
    failed = len(report.failures)
    verdict = f"{failed} of {len(outcomes)} expectations failed" if failed else f"passed: {len(outcomes)} expectations"
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
        f"<title>{_shown(title)}</title><style>{_STYLE}</style></head><body><h1>{_shown(title)}</h1>"
        f"<table>{''.join(f'<tr><th>{name}</th><td>{_shown(fact)}</td></tr>' for name, fact in facts.items())}</table>"
        f"<h2>Expectations</h2><table><tr>{''.join(f'<th>{name}</th>' for name in headers)}</tr>"
        f"{''.join(map(_row, outcomes))}</table></body></html>\n"
    )


def _shown(text: str) -> str:
    """The text as HTML. Names and values of rows cannot add tags, or characters that change the text's direction."""
    return escape(printable(text))


def _row(outcome: Outcome) -> str:
    """The row of the HTML table for an outcome."""
    if outcome.success:
        verdict = "passed"
    elif outcome.stops:
        verdict = "failed"
    else:
        verdict = "warning"
    arguments = ", ".join(f"{name}={value}" for name, value in outcome.document["kwargs"].items())
    if outcome.error is not None:
        rows_that_fail = f"cannot be evaluated: {outcome.error}"
    elif outcome.unexpected is not None:
        rows_that_fail = f"{outcome.unexpected:,}"
    elif not outcome.success and outcome.observed is not None:  # the expectation is about the table
        rows_that_fail = f"observed {outcome.observed}"
    else:
        rows_that_fail = ""
    narrow = (outcome.suite, outcome.document["type"])
    wide = (arguments, rows_that_fail)
    samples = "<br>".join(map(_shown, outcome.examples))
    return (
        f'<tr><td class="{verdict}">{verdict}</td>'
        f"{''.join(f'<td>{_shown(str(cell))}</td>' for cell in narrow)}"
        f"{''.join(f'<td class=wide>{_shown(str(cell))}</td>' for cell in wide)}<td class=wide>{samples}</td></tr>"
    )
