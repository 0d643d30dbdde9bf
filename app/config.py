"""Settings, from the environment alone (`LETHE_...`); every one has a safe default."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """What an operator may choose. None of it can change a guarantee; that is what a model's mechanism is for."""

    model_config = SettingsConfigDict(env_prefix="LETHE_", extra="ignore")

    data_dir: Path = Field(Path(".lethe"), description="Rows, sealed weights, keys and the embedded database.")
    host: str = Field("127.0.0.1", description="Address the gateway listens on.")
    port: int = Field(8000, ge=0, le=65535, description="Port the gateway listens on.")
    database_url: SecretStr | None = Field(None, description="SQLAlchemy URL; default: SQLite in the data folder.")
    broker_url: SecretStr | None = Field(None, description="Celery broker; default: none, the worker runs embedded.")
    admin_key_file: Path | None = Field(None, description="The first admin key; default: keys/admin.key in data_dir.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")
    max_upload_bytes: int = Field(1 << 30, gt=0, description="Largest upload that is accepted (413 above it).")
    max_steps: int = Field(1_000_000, gt=0, description="Most steps that one run may take.")
    max_requests_per_run: int = Field(500, gt=0, description="Most deletion requests that one run coalesces.")
    lease_seconds: float = Field(30.0, gt=0, description="How long a silent worker keeps its run.")
    poll_seconds: float = Field(1.0, gt=0, description="How often an idle worker looks for work without being woken.")

    def resolved_database_url(self) -> str:
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{(self.data_dir / 'lethe.db').resolve()}"

    def resolved_admin_key_file(self) -> Path:
        return self.admin_key_file or self.data_dir / "keys" / "admin.key"
