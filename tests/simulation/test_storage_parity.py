"""The same commands at the same times write the same log, byte for byte, in both forms."""

import pytest

from tests.forms import in_other_form
from tests.simulation.storage_bytes import GENERATIONS, STEPS, digests


@pytest.mark.compiled_only("it runs both forms, and one comparison of them will do")
def test_both_forms_write_the_same_bytes(seed: int, compiled: bool) -> None:
    print(f"seed {seed}")
    there = in_other_form(compiled, "tests.simulation.storage_bytes", seed)
    here = digests(seed)
    assert len(there) == len(here) == GENERATIONS * (STEPS + 1)
    differing = [at for at in range(len(here)) if here[at] != there[at]]
    assert differing == [], f"step {differing[0]} of seed {seed} differs first"


@pytest.mark.compiled_only("the sources write the same bytes, as the other test shows")
def test_the_log_is_the_same_when_it_is_written_again(seed: int) -> None:
    print(f"seed {seed}")
    assert digests(seed) == digests(seed)
