"""The workflow of Dataproc that runs a pipeline, what starts it, and the alerts about both."""

import json
from collections.abc import Mapping
from typing import Any

import yaml

from lakeingest.cluster.service import JOB
from lakeingest.cluster.templates import OPEN, template_document
from lakeingest.config.submit import Dataproc

_CLUSTER = "resource.labels.cluster_name"


def workflow_files(pipeline: str, service: Dataproc, request: Mapping[str, Any]) -> dict[str, str]:
    """The texts of the files by their names. `request` is Google's SubmitJobRequest for the job.

    OPEN stands for each value that the pipeline does not say.
    """
    name = workflow_name(pipeline)
    return {
        "workflow-template.yml": _yaml(_workflow(name, pipeline, request["job"]["pyspark_job"])),
        "schedule.json": json.dumps(_schedule(name, service), indent=2) + "\n",
        "alert-jobs.yml": _yaml(_alert("alert-jobs", pipeline, name)),
        "alert-schedule.yml": _yaml(_alert("alert-schedule", pipeline, name)),
    }


def workflow_name(pipeline: str) -> str:
    """The name of the pipeline's workflow, and of its cluster and its schedule."""
    return f"lakeingest-{pipeline.lower().replace('_', '-')}"


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _workflow(name: str, pipeline: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """The template of the workflow `name`, with this job of the pipeline."""
    doc = template_document("gcp/workflow-template.yml")
    cluster = doc["placement"]["managedCluster"]
    cluster["clusterName"] = name
    machines = cluster["config"]["gceClusterConfig"]
    del machines["zoneUri"]  # Dataproc chooses a zone
    machines["serviceAccount"] = OPEN
    [step] = doc["jobs"]
    step["labels"] = {"lakeingest": pipeline.lower()}
    step["pysparkJob"] = {
        "mainPythonFileUri": job["main_python_file_uri"],
        "args": list(job["args"]),
        "archiveUris": list(job["archive_uris"]),
        # without the variable of the job's token, because all jobs of the workflow would have the same token
        "properties": {key: value for key, value in job["properties"].items() if JOB not in key},
    }
    return {**doc, "id": name}


def _schedule(name: str, service: Dataproc) -> dict[str, Any]:
    """The template of the job of Cloud Scheduler that starts the workflow `name`."""
    doc = template_document("gcp/schedule.json")
    place = f"projects/{service.project}/locations/{service.region}"
    workflow = f"projects/{service.project}/regions/{service.region}/workflowTemplates/{name}"
    doc["name"] = f"{place}/jobs/{name}"
    doc["httpTarget"]["uri"] = f"https://dataproc.googleapis.com/v1/{workflow}:instantiate"
    doc["httpTarget"]["oauthToken"]["serviceAccountEmail"] = OPEN
    return doc


def _alert(file: str, pipeline: str, name: str) -> dict[str, Any]:
    """The template of an alert policy with the pipeline's names."""
    doc = template_document(f"gcp/{file}.yml")
    doc["displayName"] = doc["displayName"].replace("shop", pipeline)
    for condition in doc["conditions"]:
        [kind] = condition.keys() - {"displayName"}  # such as conditionAbsent
        filter_ = condition[kind]["filter"]
        condition[kind]["filter"] = filter_.replace('"lakeingest-shop"', f'"{name}"').replace(
            f'{_CLUSTER} = starts_with("lakeingest")', f'{_CLUSTER} = starts_with("{name}")'
        )
    return {**doc, "notificationChannels": [OPEN]}
