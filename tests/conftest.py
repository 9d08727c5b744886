"""Rules for all tests: they run on the right form of Leveret, and print their random seed.

The suite runs twice, on the sources and on the compiled form. `--form` states which one this run is
meant to test, and the run refuses to start when it would test the other. A test that can only run
in one form carries `interpreted_only("reason")` or `compiled_only("reason")`. `ONE_FORM` has the
folders whose tests run in one form.
"""

import gc
import os
import random
from pathlib import Path

import hypothesis
import pytest

from leveret import build_info

FORMS = ("interpreted", "compiled")
# Folder, form, reason. The mark of a test or a file goes before its folder's.
ONE_FORM = (
    (
        "docs",
        "interpreted",
        "documents do not name a form, and their programs use the public parts",
    ),
    ("unit/arrow", "interpreted", "it is not compiled, and bulk reads have tests in tests/http"),
    ("unit/auth", "interpreted", "it is not compiled, and logins have tests in tests/http"),
    ("unit/cli", "interpreted", "it is not compiled, and commands have tests in tests/serve"),
    ("unit/pyspark_leveret", "interpreted", "it is not compiled, and Spark does not see the form"),
    ("unit/tools", "interpreted", "tools are not compiled"),
    ("serve", "compiled", "a process is the same in both forms; tests/compat starts the other one"),
)
ROOT = Path(__file__).parent
# Deadlines per example fail on busy machines; the global timeout of pyproject.toml stays.
hypothesis.settings.register_profile("leveret", deadline=None, print_blob=True)
hypothesis.settings.load_profile("leveret")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("leveret")
    group.addoption("--form", choices=FORMS, help="Refuse to run on any other form of Leveret.")
    group.addoption("--seed", type=int, help="Seed of randomised tests; SEED in the environment.")


def pytest_configure(config: pytest.Config) -> None:
    found = form_under_test()
    wanted = config.getoption("--form")
    if wanted is not None and wanted != found:
        hint = "; is gcc installed?" if wanted == "compiled" else ""
        raise pytest.UsageError(f"asked to test the {wanted} form, found the {found} one{hint}")
    if config.option.seed is None:
        config.option.seed = _seed(os.environ.get("SEED", ""))


def _seed(given: str) -> int:
    """What a change broke must not hang on luck: a fixed seed, or `SEED=random` to look further."""
    return random.randrange(2**32) if given == "random" else int(given or 1)


def form_under_test() -> str:
    return FORMS[build_info.is_compiled()]


def pytest_report_header(config: pytest.Config) -> str:
    return f"{build_info.describe()}, seed {config.option.seed} (--seed repeats it)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    other = FORMS[not build_info.is_compiled()]
    for item in items:
        markers = [item.get_closest_marker(f"{form}_only") for form in FORMS]
        if not any(markers):
            _mark_by_folder(item)
        marker = item.get_closest_marker(f"{other}_only")
        if marker is not None:
            item.add_marker(pytest.mark.skip(reason=f"{other} only: {marker.args[0]}"))


def pytest_collection_finish() -> None:
    """Keep the collected tests out of garbage collections, which would visit thousands of them."""
    gc.freeze()


def _mark_by_folder(item: pytest.Item) -> None:
    for folder, form, reason in ONE_FORM:
        if item.path.is_relative_to(ROOT / folder):
            item.add_marker(getattr(pytest.mark, f"{form}_only")(reason))


@pytest.fixture(scope="session")
def compiled() -> bool:
    """Whether the form under test is the compiled one."""
    return build_info.is_compiled()


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this run; print it with whatever a randomised test fails on."""
    found: int = request.config.option.seed
    return found
