"""The interpreted and the compiled form answer corrupted conversations with the same bytes."""

from __future__ import annotations

import os

import pytest

from tests.forms import in_other_form
from tests.fuzz.driver import digests

COUNT = 1500  # connections


@pytest.mark.compiled_only("it runs both forms, and one comparison of them will do")
def test_both_forms_answer_alike(seed: int, compiled: bool) -> None:
    seed = int(os.environ.get("LEVERET_FUZZ_SEED") or seed)
    print(f"LEVERET_FUZZ_SEED={seed}")
    in_other_form(compiled, "tests.fuzz.driver", seed, 1)  # skips if there is no other form
    found = in_other_form(compiled, "tests.fuzz.driver", seed, COUNT)
    here = digests(seed, COUNT)
    assert len(found) == COUNT
    differing = [at + 1 for at in range(COUNT) if here[at] != found[at]]
    assert differing == [], f"connection {differing[0]} of seed {seed} differs first"
