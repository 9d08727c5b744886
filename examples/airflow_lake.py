"""An Airflow DAG that keeps a lake up to date, and checks every message once a day.

Copy this file into the DAG folder. The workers need `leveret[spark]` and Java 17. Set two variables
of Airflow: `leveret_url` (http://user:password@host:15672) and `leveret_lake` (a directory that all
workers see).

A task that fails may run again at any time: archiving continues where it stopped, and a date is
refined as a whole. `max_active_runs` and the lock of the lake keep two runs apart.
"""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

STREAMS = ("orders", "payments")

ENVIRONMENT = {
    "LEVERET_URL": "{{ var.value.leveret_url }}",
    "LEVERET_LAKE": "{{ var.value.leveret_lake }}",
}
DEFAULTS = {
    "retries": 2,
    "retry_delay": timedelta(minutes=2),
    "execution_timeout": timedelta(hours=2),
}


def pipeline(task: str, *words: str) -> BashOperator:
    """Return a task that runs `leveret pipeline` with these words."""
    return BashOperator(
        task_id=task,
        bash_command=" ".join(["leveret pipeline", *words]),
        env=ENVIRONMENT,
        append_env=True,
    )


with DAG(
    dag_id="leveret_lake",
    description="Archive, refine and compact streams every fifteen minutes",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # a run archives everything up to now: there is nothing to catch up
    max_active_runs=1,
    default_args=DEFAULTS,
):
    pipeline("run", "run", *STREAMS) >> pipeline("status", "status", "--json")

with DAG(
    dag_id="leveret_audit",
    description="Check that every message is accounted for",
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULTS,
):
    audit = pipeline("audit", "audit", "--json")
    audit.retries = 0  # another try finds the same faults
