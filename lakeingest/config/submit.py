"""The services that a pipeline can be submitted to, as frozen values of pipeline.yml."""

from typing import ClassVar, TypeAlias

from pydantic import Field

from lakeingest.config.frozen import Frozen

_REGION = r"^[a-z]{2}(-[a-z]+)+-[0-9]+$"
_S3 = r"^s3://[a-z0-9][a-z0-9.-]+[a-z0-9](/[\w.=-]+)*/?$"
_GS = r"^gs://[a-z0-9][a-z0-9._-]+[a-z0-9](/[\w.=-]+)*/?$"


class EmrServerless(Frozen):
    """An application of EMR Serverless (release 7.1 or later), and settings of the jobs in it."""

    key: ClassVar = "emr-serverless"

    application_id: str
    execution_role_arn: str
    region: str = Field(pattern=_REGION)
    bucket: str = Field(pattern=_S3)
    secrets: dict[str, str] = Field(default={})  # by variable of pipeline.yml: name or ARN of the secret with its value
    max_minutes: int | None = Field(default=None, ge=5)


class Emr(Frozen):
    """A cluster of EMR (release 7.1 or later). Its jobs are steps."""

    key: ClassVar = "emr"

    cluster_id: str
    region: str = Field(pattern=_REGION)
    bucket: str = Field(pattern=_S3)
    execution_role_arn: str | None = None


class Dataproc(Frozen):
    """A cluster of Dataproc (image 2.2 or 2.3)."""

    key: ClassVar = "dataproc"

    project: str
    region: str
    cluster: str
    bucket: str = Field(pattern=_GS)


class DataprocServerless(Frozen):
    """Dataproc Serverless, which runs batches without a cluster."""

    key: ClassVar = "dataproc-serverless"

    project: str
    region: str
    runtime: str  # a version whose Spark, Scala and Python are those for which the job's archives are built
    bucket: str = Field(pattern=_GS)
    service_account: str | None = None
    subnetwork: str | None = None
    max_minutes: int | None = Field(default=None, ge=10)


ServiceConfig: TypeAlias = EmrServerless | Emr | Dataproc | DataprocServerless


class Submit(Frozen):
    """`submit` of pipeline.yml: the services to which the pipeline can be submitted."""

    emr_serverless: EmrServerless | None = Field(default=None, alias="emr-serverless")
    emr: Emr | None = None
    dataproc: Dataproc | None = None
    dataproc_serverless: DataprocServerless | None = Field(default=None, alias="dataproc-serverless")
