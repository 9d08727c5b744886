"""The audit of the data pipeline as the judge of a run: it reports on every message by id."""

from pyspark.sql import SparkSession

from leveret.pipeline.environment import Environment
from leveret.pipeline.flows.audit import AuditRequest, audit
from tools.chaos.run import Judge


def judge_by(spark: SparkSession) -> Judge:
    """A judge that asks the broker on a port, and reads its chronicles."""

    def judge(http_port: int) -> list[str]:
        environment = Environment(f"http://guest:guest@127.0.0.1:{http_port}")
        found = audit(spark, environment, AuditRequest(), lambda step: None)
        told = [f"{one['kind']} {one['broker_id']} {one['what']}" for one in found.faults]
        odd = [f"balance of {q['queue']} is {q['balance']}" for q in found.queues if q["balance"]]
        if not found.events or not found.queues:
            odd.append("nothing was remembered")
        return told + odd

    return judge
