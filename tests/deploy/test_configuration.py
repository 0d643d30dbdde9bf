"""docs/configuration.md documents every setting."""

from tests.deploy import configuration


def test_every_setting_is_documented() -> None:
    """The table of settings in the documentation matches the settings in the code; if not, `python -m
    tests.deploy.configuration` rewrites the table."""
    assert configuration.written() == configuration.table()
