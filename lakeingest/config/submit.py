"""The services that a pipeline can be submitted to, as frozen values of pipeline.yml."""

from pydantic import BaseModel, ConfigDict, Field


class EmrServerless(BaseModel):
    """An application of EMR Serverless, on release 7.1 or later, and what a job needs to run in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    application_id: str
    execution_role_arn: str
    region: str = Field(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]+$")
    bucket: str = Field(pattern=r"^s3://[a-z0-9][a-z0-9.-]+[a-z0-9](/[\w.=-]+)*/?$")
    secrets: dict[str, str] = {}  # variable of pipeline.yml -> name or ARN of the secret that holds its value
    max_minutes: int | None = Field(default=None, ge=5)

    def place(self, name: str) -> str:
        """The URI of a file of this name, after its upload."""
        return f"{self.bucket.rstrip('/')}/{name}"


class Submit(BaseModel):
    """The services of a pipeline.yml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    emr_serverless: EmrServerless | None = Field(default=None, alias="emr-serverless")
