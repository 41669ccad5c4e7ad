"""An Airflow DAG (Airflow 3) that submits a pipeline every ten minutes, and waits for the job.

lakeingest is installed on the workers (`pip install 'lakeingest[aws]'`). The task has the job's exit code: 75 asks for
a retry, and 99 fails the task without one, because a retry helps nobody.
"""

from datetime import datetime, timedelta
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

COMMAND = """
lakeingest submit emr-serverless --wait -c /opt/pipelines/shop/pipeline.yml
code=$?
case $code in
  0|75) exit $code ;;
  *) echo "lakeingest ended with $code: a person has to act"; exit 99 ;;
esac
"""


class Lakeingest(BashOperator):
    """A task that fails at once with exit code 99, where BashOperator would call it skipped."""

    def execute(self, context: Any) -> Any:
        """Run the command. Raises AirflowFailException for 99, and the errors of BashOperator."""
        try:
            return super().execute(context)
        except AirflowSkipException:
            raise AirflowFailException("a person has to act: the log of the task has the error") from None


with DAG(
    dag_id="lakeingest_shop",
    schedule=timedelta(minutes=10),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,  # a second run of the pipeline would end with 75, because the first one has the lease
    tags=["lakeingest"],
) as dag:
    Lakeingest(
        task_id="run",
        bash_command=COMMAND,
        retries=3,
        retry_delay=timedelta(minutes=2),
        execution_timeout=timedelta(hours=6),
    )
