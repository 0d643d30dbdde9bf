"""Settings, from the environment (`LETHE_...`), or files named like them where secrets lie; all have safe defaults."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

_SECRETS = Path("/run/secrets")
"""Where containers find files such as `lethe_database_url`."""


class Settings(BaseSettings):
    """What an operator may choose. None of it can change a guarantee; that is what a model's mechanism is for."""

    model_config = SettingsConfigDict(
        env_prefix="LETHE_", extra="ignore", secrets_dir=_SECRETS if _SECRETS.is_dir() else None
    )

    data_dir: Path = Field(Path(".lethe"), description="Rows, sealed weights, keys and the embedded database.")
    host: str = Field("127.0.0.1", description="Address the gateway listens on.")
    port: int = Field(8000, ge=0, le=65535, description="Port the gateway listens on.")
    database_url: SecretStr | None = Field(None, description="SQLAlchemy URL; default: SQLite in the data folder.")
    broker_url: SecretStr | None = Field(None, description="Celery broker; default: none, the worker runs embedded.")
    admin_key_file: Path | None = Field(None, description="The first admin key; default: keys/admin.key in data_dir.")
    store_url: str | None = Field(
        None,
        pattern=r"^(s3://[^/:]+(/[^:]*)?|[^:]+)$",
        description="Where weights and rows are: a folder, or s3://bucket/prefix; default: the data folder.",
    )
    cache_dir: Path | None = Field(
        None, description="This host's copy of rows that are in a bucket; default: cache in data_dir."
    )
    key_encryption_key_file: Path | None = Field(
        None, description="What wraps the keys of sealed weights and rows; default: keys/kek in data_dir."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")
    max_upload_bytes: int = Field(1 << 30, gt=0, description="Largest upload that is accepted (413 above it).")
    max_steps: int = Field(1_000_000, gt=0, description="Most steps that one run may take.")
    max_requests_per_run: int = Field(500, gt=0, description="Most deletion requests that one run coalesces.")
    device: str = Field(
        "auto",
        pattern="^(auto|cpu|cuda(:[0-9]{1,3})?)$",
        description="Where runs compute: auto (a GPU, if there is one), cpu, or a GPU such as cuda:1.",
    )
    threads: int | None = Field(None, gt=0, description="CPU threads of a run; default: all that a worker may use.")
    lease_seconds: float = Field(30.0, gt=0, description="How long a silent worker keeps its run.")
    risk_days: float = Field(7.0, gt=0, le=365, description="A request that is due within so many days is at risk.")
    otlp_endpoint: str | None = Field(
        None,
        pattern="^https?://",
        description="OpenTelemetry collector (OTLP over HTTP, such as http://collector:4318); default: no traces.",
    )
    stall_seconds: float = Field(600.0, gt=0, description="How long a run may take no step before its worker lets go.")
    poll_seconds: float = Field(1.0, gt=0, description="How often an idle worker looks for work without being woken.")

    def resolved_database_url(self) -> str:
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{(self.data_dir / 'lethe.db').resolve()}"

    def resolved_admin_key_file(self) -> Path:
        return self.admin_key_file or self.data_dir / "keys" / "admin.key"

    @property
    def in_bucket(self) -> bool:
        """Whether weights and rows are in a bucket, not in a folder."""
        return self.store_url is not None and self.store_url.startswith("s3://")

    def store_folder(self) -> Path:
        return self.data_dir if self.store_url is None else Path(self.store_url)

    def resolved_cache_dir(self) -> Path:
        return self.cache_dir or self.data_dir / "cache"

    def resolved_key_encryption_key_file(self) -> Path:
        return self.key_encryption_key_file or self.data_dir / "keys" / "kek"


class AwsSettings(BaseSettings):
    """What a client of S3 is told by the usual variables and cannot read by itself."""

    model_config = SettingsConfigDict(env_prefix="AWS_", extra="ignore")

    access_key_id: SecretStr | None = Field(None, description="Set: the credentials are in the environment.")
    shared_credentials_file: Path = Field(Path("~/.aws/credentials"), description="Profiles and their keys.")
    profile: str = Field("default", description="The profile to use.")
    allow_http: bool = Field(False, description="Whether the endpoint may be http://.")
