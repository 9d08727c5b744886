"""The nodes of a cluster accept each other's tokens of jobs."""

from pathlib import Path

import pytest

from leveret.auth import UserDirectory
from leveret.clock import Clock
from leveret.config.settings import Settings
from leveret.engine.broker import Broker
from leveret.errors import TokenRefusedError
from leveret.runtime.job_tokens import JobTokens, put_cluster_secret, secret_in

NOW_MS = Clock().now_ms()
SECRET = b"a secret of all nodes"


def tokens_of(folder: Path, secret: bytes) -> JobTokens:
    folder.mkdir(exist_ok=True)
    put_cluster_secret(folder, secret)
    return JobTokens(Settings(data=folder), folder)


def namespaces(tokens: JobTokens, token: str) -> frozenset[str]:
    directory = UserDirectory(Broker(1).register, lambda: NOW_MS)
    return tokens.access(token, NOW_MS, directory).namespaces


def test_token_of_one_node_is_valid_at_the_others(tmp_path: Path) -> None:
    one, other = tokens_of(tmp_path / "a", SECRET), tokens_of(tmp_path / "b", SECRET)
    token = one.sign(["payments"], "worker", NOW_MS, 60)
    assert namespaces(other, token) == {"payments"}


def test_token_of_another_cluster_is_refused(tmp_path: Path) -> None:
    one, other = tokens_of(tmp_path / "a", SECRET), tokens_of(tmp_path / "b", b"another secret")
    with pytest.raises(TokenRefusedError):
        namespaces(other, one.sign(["payments"], "worker", NOW_MS, 60))


def test_secret_of_a_node_that_was_alone_is_replaced_once(tmp_path: Path) -> None:
    alone = secret_in(tmp_path)
    put_cluster_secret(tmp_path, SECRET)
    first = secret_in(tmp_path)
    put_cluster_secret(tmp_path, SECRET)
    assert secret_in(tmp_path) == first != alone
    assert [path.name for path in tmp_path.iterdir()] == ["jobs-secret"]
    assert (tmp_path / "jobs-secret").stat().st_mode & 0o777 == 0o600
