"""Reports: the result of each gate, stored in the state folder as a document and as a page for people."""

import json
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from lakeingest.core.schema import TableId
from lakeingest.errors import StorageFailed
from lakeingest.quality.gates import GateReport
from lakeingest.quality.page import page

REPORTS_PER_TABLE = 50


def has_reports(state: Path, table: TableId) -> bool:
    """Whether the pipeline of this state folder has run a gate on the table."""
    return _folder(state, table).is_dir()


def save_report(state: Path, table: TableId, stage: str, rows: int, report: GateReport) -> Path:
    """Write the report and drop the oldest; the answer is the path of its page, with its document beside it."""
    folder = _folder(state, table)
    now = datetime.now(UTC)
    path = folder / f"{now.strftime('%Y%m%dT%H%M%S.%fZ')}-{stage.replace(' ', '-')}.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".json").write_text(json.dumps(report.document, indent=1))
        path.write_text(page(table, stage, now, rows, report))
        for old in sorted(folder.glob("*.html"))[:-REPORTS_PER_TABLE]:
            old.with_suffix(".json").unlink(missing_ok=True)
            old.unlink(missing_ok=True)
    except OSError as error:
        raise StorageFailed(
            f"the state folder cannot be written: {folder}: {error.strerror}; make room or repair it, then run the same"
            " command again"
        ) from error
    return path


def _folder(state: Path, table: TableId) -> Path:
    return state / "quality" / quote(str(table), safe=" ")
