"""`leveret jobs token`."""

import os
from pathlib import Path

import jwt
import pytest
from typer.testing import CliRunner

from leveret.cli.app import make_app

APP = make_app("jobs")

RUNNER = CliRunner()


def asked(*words: str, **env: str) -> tuple[int, str]:
    result = RUNNER.invoke(APP, ["jobs", "token", *words], env=env)
    return result.exit_code, result.output


def test_a_token_is_signed_by_the_secret_of_the_data_directory(tmp_path: Path) -> None:
    data = str(tmp_path)
    (tmp_path / "lock").touch()  # a node has used the directory
    code, token = asked("--data", data, "-n", "a", "-n", "b", "--expires", "12h")
    assert code == 0
    file = tmp_path / "jobs-secret"
    assert file.stat().st_mode & 0o777 == 0o600
    claims = jwt.decode(token.strip(), file.read_text().strip(), algorithms=["HS256"])
    assert claims["namespaces"] == ["a", "b"]
    assert claims["exp"] - claims["iat"] == 12 * 3600
    before = file.read_text()
    assert asked("--data", data, "-n", "a")[0] == 0
    assert file.read_text() == before
    assert sorted(os.listdir(tmp_path)) == ["jobs-secret", "lock"]


def test_a_mistyped_data_directory_is_refused_and_not_made(tmp_path: Path) -> None:
    mistyped = tmp_path / "typo"
    code, said = asked("--data", str(mistyped), "-n", "a")
    assert code == 1
    assert "is not the data directory of a node" in said
    assert not mistyped.exists()


def test_a_secret_of_the_settings_signs_instead(tmp_path: Path) -> None:
    secret = "a secret of thirty-two characters"
    words = ("--data", str(tmp_path), "--namespace", "*")
    _, token = asked(*words, LEVERET_JOBS_TOKEN_SECRET=secret)
    assert jwt.decode(token.strip(), secret, algorithms=["HS256"])["namespaces"] == ["*"]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("span", ["12", "h", "0s", "-1h", "1w", "99999999d", ""])
def test_an_invalid_time_span_is_refused(tmp_path: Path, span: str) -> None:
    code, _ = asked("--data", str(tmp_path), "-n", "a", "--expires", span)
    assert code == 2


def test_a_secret_that_is_too_short_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jobs-secret").write_text("short")
    code, said = asked("--data", str(tmp_path), "-n", "a")
    assert code == 1
    assert "jobs-secret" in said
