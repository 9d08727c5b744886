"""Reading shards beside the service: a failing database raises an error of ours."""

import pytest

from leveret.errors import JobsUnavailableError
from leveret.job_service.shards.resharding.shard_reader import split_shards
from tools.ports import free_port


def test_a_shard_that_cannot_be_had_is_told_of() -> None:
    for dsn in ("nonsense", f"postgresql://nobody@127.0.0.1:{free_port()}/x"):
        with pytest.raises(JobsUnavailableError, match="a shard fails: "):
            split_shards([dsn], "true", 10)
