"""docs/configuration.md documents every setting."""

from tests.deploy import configuration


def test_every_setting_is_documented() -> None:
    """The table of settings in the documentation matches the settings in the code; if they differ, run `python -m
    tests.deploy.configuration` to rewrite the table."""
    assert configuration.written() == configuration.table()
