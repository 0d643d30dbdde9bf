"""Settings and secrets in the forms in which editors, shells and mounted files write them."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from app import installations
from app.access import service as access
from app.config import Settings
from app.installations import Installation
from app.keys import KeyEncryptionFile, Keys, KeyUnreadable

URL = "postgresql://lethe:s3cret@db.example/lethe"
SURROUNDINGS = ["{}\n", "{}\r\n", "\ufeff{}", '"{}"\n', "'{}'", '\ufeff"{}"\r\n']


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_settings_are_trimmed(monkeypatch: pytest.MonkeyPatch, surroundings: str) -> None:
    """A line break, byte order mark or pair of quotes around a setting is removed."""
    values = {"DATABASE_URL": URL, "BROKER_URL": "redis://:a b@redis/0", "HOST": "10.0.0.1", "PORT": "8001"}
    for name, value in values.items():
        monkeypatch.setenv(f"LETHE_{name}", surroundings.format(value))
    settings = Settings()
    assert settings.database_url is not None
    assert settings.broker_url is not None
    read = settings.database_url.get_secret_value(), settings.broker_url.get_secret_value(), settings.host
    assert (*read, str(settings.port)) == tuple(values.values())


@pytest.mark.parametrize("broken", [f"{URL}\nredis://", f"{URL[:20]}\ufeff{URL[20:]}", f"{URL}\n{URL}\n"])
def test_a_url_of_two_lines_is_refused(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """A URL with a line break or an invisible character is refused with a specific error that does not reveal its
    password."""
    monkeypatch.setenv("LETHE_DATABASE_URL", broken)
    with pytest.raises(ValidationError, match="expected a URL of one line") as refused:
        Settings()
    assert "s3cret" not in str(refused.value)
    assert [fault["loc"] for fault in refused.value.errors()] == [("database_url",)]


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_secret_files_are_trimmed(installation: Installation, tmp_path: Path, surroundings: str) -> None:
    """A line break, byte order mark or pair of quotes around a key or secret in a file is removed."""
    settings, admin_key = installation.settings, access.new_key()
    files = [settings.resolved_key_encryption_key_file(), settings.data_dir / "keys" / "subject.key"]
    before = KeyEncryptionFile(files[0]).check_values("ins_1"), installation.keys.subject_ref("ten_1", "jane")
    for file in files:
        file.write_text(surroundings.format(file.read_text()))
    opened = Keys(settings.data_dir / "keys")
    assert (KeyEncryptionFile(files[0]).check_values("ins_1"), opened.subject_ref("ten_1", "jane")) == before

    (tmp_path / "admin").write_text(surroundings.format(admin_key))
    settings = settings.model_copy(update={"admin_key_file": tmp_path / "admin"})
    installations.set_up(settings)
    with installation.database.reading() as session:
        assert access.find(session, admin_key).name == "admin"


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nkeys", "\ufefflethe_abc".encode("utf-16"), b"caf\xe9"])
def test_an_unusable_admin_key_file_is_refused(installation: Installation, content: bytes) -> None:
    """If the admin key file is empty, has two lines or is not ASCII, startup fails with an error that names the file's
    path but does not show its content."""
    path = installation.settings.resolved_admin_key_file()
    path.write_bytes(content)
    sentence = f"Expected one API key of visible ASCII characters in {path}; write it again."
    with pytest.raises(KeyUnreadable, match=re.escape(sentence)) as refused:
        installations.set_up(installation.settings)
    assert "two" not in str(refused.value)
