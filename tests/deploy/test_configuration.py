"""docs/configuration.md says what an operator may choose."""

from tests.deploy import configuration


def test_every_setting_is_documented() -> None:
    """The table is what the settings are; otherwise `python -m tests.deploy.configuration` writes it anew."""
    assert configuration.written() == configuration.table()
