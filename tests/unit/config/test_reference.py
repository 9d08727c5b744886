"""The reference page names every option by its key, environment name and flag."""

from leveret.config.reference import page
from leveret.config.settings import env_name, flag_name, options


def test_page_has_a_section_for_every_option() -> None:
    text = page()
    for name in options():
        section = text.partition(f"\n## `{name}`\n")[2].partition("\n## ")[0]
        assert f"`{env_name(name)}`" in section
        assert flag_name(name) in section


def test_page_states_unit_and_range() -> None:
    section = page().partition("## `frame_max`")[2].partition("\n## ")[0]
    assert "`131072` bytes" in section
    assert "between 4096 and 2147483647" in section
