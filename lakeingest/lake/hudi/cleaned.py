"""Cleanings in the timeline: by them, Hudi refuses new queries on commits whose files were deleted.

Without a cleaning, Hudi would answer such a query (`as.of.instant`) with the rows of the remaining files, which are not
all rows. Source: Hudi's technical specification for version 9 of a table, "Timeline", and its Avro schemas
`HoodieCleanerPlan` and `HoodieCleanMetadata`.
"""

import io
from typing import Any

import fastavro

from lakeingest.files.file import File
from lakeingest.lake.hudi.commit import next_moment
from lakeingest.lake.hudi.timeline import metadata_of, timeline

_POLICY = "KEEP_LATEST_COMMITS"
_STRINGS = {"type": "array", "items": "string"}
_NAMESPACE = "org.apache.hudi.avro.model"


def _field(name: str, kind: Any, **default: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **default}


_INSTANT = {
    "type": "record",
    "name": "HoodieActionInstant",
    "fields": [_field(name, "string") for name in ("timestamp", "action", "state")],
}
_PLAN = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieCleanerPlan",
        "namespace": _NAMESPACE,
        "fields": [
            _field("earliestInstantToRetain", ["null", _INSTANT], default=None),
            _field("lastCompletedCommitTimestamp", "string", default=""),
            _field("policy", "string"),
            _field("version", ["int", "null"], default=1),
        ],
    }
)
_OF_PARTITION = {
    "type": "record",
    "name": "HoodieCleanPartitionMetadata",
    "fields": [
        _field("partitionPath", "string"),
        _field("policy", "string"),
        *(_field(name, _STRINGS) for name in ("deletePathPatterns", "successDeleteFiles", "failedDeleteFiles")),
    ],
}
_METADATA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieCleanMetadata",
        "namespace": _NAMESPACE,
        "fields": [
            _field("startCleanTime", "string"),
            _field("timeTakenInMillis", "long"),
            _field("totalFilesDeleted", "int"),
            _field("earliestCommitToRetain", "string"),
            _field("lastCompletedCommitTimestamp", "string", default=""),
            _field("partitionMetadata", {"type": "map", "values": _OF_PARTITION}),
            _field("version", ["int", "null"], default=1),
        ],
    }
)


def earliest_readable(folder: File) -> str:
    """The instant of the earliest commit that has all its files; '' if no cleaning of the timeline names a commit."""
    instants = [""]
    for file in timeline(folder, "*_*.clean"):
        try:
            with metadata_of(file) as metadata:
                instants.append(str(metadata.get("earliestCommitToRetain") or ""))
        except FileNotFoundError:  # a run has archived the cleaning since its name was read
            continue
    return max(instants)


def refuse_queries_before(folder: File, first: str, last: str) -> None:
    """Let Hudi refuse queries on commits before the commit `first`, because their files will be deleted.

    The call writes a cleaning into the timeline. This cleaning deletes nothing, and says that the commits from `first`
    on are retained. `last` is the newest commit. `first` and `last` are instants.
    """
    timeline_folder = folder / ".hoodie" / "timeline"
    begun = next_moment(folder)
    retained = {"timestamp": first, "action": "commit", "state": "COMPLETED"}
    plan = {"earliestInstantToRetain": retained, "lastCompletedCommitTimestamp": last, "policy": _POLICY, "version": 2}
    metadata = {
        "startCleanTime": begun,
        "timeTakenInMillis": 0,
        "totalFilesDeleted": 0,
        "earliestCommitToRetain": first,
        "lastCompletedCommitTimestamp": last,
        "partitionMetadata": {},
        "version": 2,
    }
    (timeline_folder / f"{begun}.clean.requested").put(_avro(_PLAN, plan))
    (timeline_folder / f"{begun}.clean.inflight").put(b"")
    (timeline_folder / f"{begun}_{next_moment(folder)}.clean").put(_avro(_METADATA, metadata))


def _avro(schema: Any, doc: dict[str, Any]) -> bytes:
    """The contents of an Avro file that has this document alone."""
    contents = io.BytesIO()
    fastavro.writer(contents, schema, [doc])
    return contents.getvalue()
