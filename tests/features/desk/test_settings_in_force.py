"""Settings on a page: every one with its value, except secrets; for operators."""

from pathlib import Path

from pydantic import SecretStr

from app.config import Settings
from app.features.desk.pages.administration import in_force
from tests.features.desk.browsing import Browser


def test_every_setting_is_shown(officer: Browser, settings: Settings) -> None:
    """Each environment variable is shown with its value and description, and marked if it differs from its default."""
    page = officer.get("/admin/settings").text
    for name in Settings.model_fields:
        assert f"LETHE_{name.upper()}" in page.replace("<wbr>", "")
    assert str(settings.data_dir) in page
    assert "SQLite" not in page.partition("Every setting")[0]
    assert "it answers, and has a schema that this release can use" in page


def test_secrets_are_not_shown() -> None:
    """For a setting whose URL can contain a password, the page shows only that the setting has a value."""
    settings = Settings(
        data_dir=Path("/data"),
        database_url=SecretStr("postgresql://lethe:hunter2@db/lethe"),
        otlp_endpoint="https://user:hunter2@collector",
    )
    found = {one.variable: one for one in in_force(settings)}
    assert "hunter2" not in repr(found)
    assert found["LETHE_DATABASE_URL"].is_secret
    assert found["LETHE_OTLP_ENDPOINT"].is_secret
    assert not found["LETHE_BROKER_URL"].is_secret
    assert (found["LETHE_DATA_DIR"].value, found["LETHE_DATA_DIR"].is_changed) == ("/data", True)
    assert (found["LETHE_RISK_DAYS"].value, found["LETHE_RISK_DAYS"].is_changed) == ("7", False)
