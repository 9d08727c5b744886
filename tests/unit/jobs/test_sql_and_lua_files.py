"""The SQL and Lua files of the shards store are found, and their placeholders are filled in."""

import re
from importlib.resources import files

import pytest

from leveret.job_service.shards.migration import REPLACED, STEPS
from leveret.job_service.shards.redis.scripts import load_script
from leveret.job_service.shards.sql.loader import PLACEHOLDERS, load_sql

SQL = files("leveret.job_service.shards.sql")
USED = [step for step in STEPS if step != REPLACED]


@pytest.mark.parametrize("step", USED)
def test_a_step_has_no_placeholder_left(step: str) -> None:
    text = load_sql(step)
    assert "CREATE" in text
    assert "{{" not in text


def test_every_sql_file_is_used_and_every_placeholder_too() -> None:
    scripts = {each.name for each in SQL.iterdir() if each.name.endswith(".sql")}
    assert scripts == {f"{step}.sql" for step in USED}
    fragments = list(SQL.joinpath("fragments").iterdir())
    texts = [SQL.joinpath(name).read_text() for name in scripts]
    whole = "".join([*texts, *(each.read_text() for each in fragments)])
    for name in [*PLACEHOLDERS, *(each.name.removesuffix(".sql") for each in fragments)]:
        assert f"{{{{{name}}}}}" in whole


def test_lua_scripts_are_found_and_used() -> None:
    folder = files("leveret.job_service.shards.redis")
    names = {each.name[:-4] for each in folder.iterdir() if each.name.endswith(".lua")}
    clients = [folder.joinpath(f"{name}_client.py").read_text() for name in ("redis", "prefetch")]
    assert names == set(re.findall(r'(?:load|self\.)_script\("(\w+)"', "".join(clients)))
    assert all("redis.call" in load_script(name) for name in names)
