"""Settings from environment variables (`LETHE_...`) or, for secrets, from files with the same names. All settings have
safe defaults."""

import ipaddress
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from lethe.contract.fields import trimmed

_SECRETS = Path("/run/secrets")
"""Folder in which containers find secret files such as `lethe_database_url`."""


class Settings(BaseSettings):
    """The operator's settings. None of them affects a guarantee; guarantees depend only on a model's mechanism."""

    model_config = SettingsConfigDict(
        env_prefix="LETHE_",
        extra="ignore",
        hide_input_in_errors=True,
        secrets_dir=_SECRETS if _SECRETS.is_dir() else None,
    )

    data_dir: Path = Field(Path(".lethe"), description="Folder of rows, weights, keys and the embedded database.")
    host: str = Field(
        "127.0.0.1",
        description="Address on which the gateway listens. Only clients on this machine or the proxy should reach it.",
    )
    port: int = Field(8000, ge=0, le=65535, description="Port on which the gateway listens.")
    trusted_proxies: str = Field(
        "",
        description="Comma-separated addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Proto "
        "headers are trusted, such as 10.1.0.2; default: none.",
    )
    database_url: SecretStr | None = Field(None, description="SQLAlchemy URL; default: SQLite in the data folder.")
    broker_url: SecretStr | None = Field(
        None, description="Celery broker: redis:// or amqp:// (RabbitMQ); default: none, the worker runs embedded."
    )
    admin_key_file: Path | None = Field(
        None, description="File of the first admin key; default: keys/admin.key in data_dir."
    )
    store_url: str | None = Field(
        None,
        pattern=r"^(s3://[^/:]+(/[^:]*)?|[^:]+)$",
        description="Folder or bucket (s3://bucket/prefix) of weights and rows; default: the data folder.",
    )
    key_encryption_key_file: Path | None = Field(
        None, description="File with the key that encrypts the keys of weights and rows; default: keys/kek in data_dir."
    )
    tombstones: Path | None = Field(
        None,
        description="File that records forgotten people for `lethe restore`. Keep it on another medium than the data "
        "folder; default: tombstones.jsonl in data_dir.",
    )
    tombstone_days: float | None = Field(
        None,
        gt=0,
        le=3650,
        description="Days for which tombstones are kept. Choose more than the age of the oldest backup you would "
        "restore; default: forever.",
    )
    backup_days: float = Field(
        7.0, gt=0, le=3650, description="Days after which the overview warns that the last backup is late."
    )
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port on which the gateway and the accounting service serve metrics without an API key; default: "
        "none, and `/metrics` requires a key with metrics:read.",
    )
    metrics_host: str = Field("127.0.0.1", description="Address of the metrics port. Only Prometheus should reach it.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Minimum level of log lines.")
    calls_per_minute: int = Field(
        0, ge=0, description="Maximum calls per minute for any API key (429 above it); 0: unlimited."
    )
    failed_calls_per_minute: int = Field(
        60, ge=0, description="Calls per minute with a wrong key before their address is refused (429); 0: unlimited."
    )
    cors_origins: str = Field(
        "",
        pattern=r"^(\*|https?://[^/,\s]+(\s*,\s*https?://[^/,\s]+)*)?$",
        description="Comma-separated origins of web pages that may call the API, such as https://privacy.example.com; "
        "default: none.",
    )
    audit_checkpoint_seconds: float = Field(
        3600.0, gt=0, description="Interval at which the head of an audit log is signed if the log has grown."
    )
    max_upload_bytes: int = Field(1 << 30, gt=0, description="Maximum size of an upload (413 above it).")
    max_tenant_bytes: int = Field(64 * 2**30, gt=0, description="Maximum total size of a tenant's uploads (409).")
    max_attachment_bytes: int = Field(
        5 * 2**20, gt=0, le=32_000_000, description="Maximum size of a file attached to a deletion request."
    )
    max_attachments: int = Field(
        20, ge=0, le=500, description="Maximum number of files attached to one deletion request; 0: none."
    )
    max_network_bytes: int = Field(256 * 2**20, gt=0, description="Maximum size of the ONNX file of a public network.")
    network_memory_bytes: int = Field(
        4 * 2**30, gt=0, description="Maximum memory of the process that runs a public network."
    )
    network_seconds: float = Field(
        60.0, gt=0, le=3600, description="Maximum seconds that a public network may take for a batch of 32 rows."
    )
    max_steps: int = Field(1_000_000, gt=0, description="Maximum number of steps of one run.")
    max_requests_per_run: int = Field(
        500, gt=0, description="Maximum number of deletion requests that one run coalesces."
    )
    workers: int = Field(
        1,
        ge=1,
        le=64,
        description="Number of worker processes started by `lethe up`; the second one runs deletions only.",
    )
    device: str = Field(
        "auto",
        pattern="^(auto|cpu|cuda(:[0-9]{1,3})?)$",
        description="Device on which runs compute: auto (a GPU if there is one), cpu, or one GPU such as cuda:1.",
    )
    threads: int | None = Field(None, gt=0, description="CPU threads of a run; default: all available to the worker.")
    rows_memory_bytes: int | None = Field(
        None, gt=0, description="Maximum memory for the rows of a run; default: half of the machine's or container's."
    )
    lease_seconds: float = Field(30.0, gt=0, description="Seconds until a silent worker loses its run.")
    risk_days: float = Field(7.0, gt=0, le=365, description="Days before its deadline at which a request is at risk.")
    idempotency_days: float = Field(
        7.0, gt=0, le=3650, description="Days for which a repeated Idempotency-Key returns the first answer."
    )
    otlp_endpoint: str | None = Field(
        None,
        pattern="^https?://",
        description="OpenTelemetry collector (OTLP over HTTP, such as http://collector:4318); default: no traces.",
    )
    stall_seconds: float = Field(600.0, gt=0, description="Seconds without progress until a worker abandons its run.")
    poll_seconds: float = Field(
        1.0,
        gt=0,
        description="Interval at which an idle worker checks for work. New work wakes it at the next multiple of this "
        "interval on the clock.",
    )
    webhook_allowed_networks: str = Field(
        "",
        description="Comma-separated private networks to which webhooks may be sent, also over plain http, such as "
        "10.1.0.0/16; default: none.",
    )
    webhook_timeout_seconds: float = Field(10.0, gt=0, le=60, description="Timeout of a webhook delivery in seconds.")
    webhook_keep_days: float = Field(
        30.0, gt=0, le=3650, description="Days for which webhook deliveries are kept and can be replayed."
    )
    opendsr_domain: str | None = Field(
        None,
        pattern="^[A-Za-z0-9.-]{1,253}$",
        description="OpenDSR: domain at which controllers reach this processor over https; default: the host.",
    )
    opendsr_certificate_file: Path | None = Field(
        None, description="OpenDSR: X.509 certificates (PEM) for the domain; default: a self-signed one, created once."
    )
    opendsr_key_file: Path | None = Field(None, description="OpenDSR: RSA key (PEM) of the first certificate.")

    require_totp: bool = Field(
        False, description="Require an authenticator code from everyone who logs in with a password."
    )
    oidc_issuer: str | None = Field(
        None,
        pattern=r"^(https://|http://(localhost|127\.0\.0\.1)(:|/|$))\S*$",
        description="Issuer URL of the OpenID Connect identity provider with which people log in to the dashboard, "
        "exactly as the provider states it; default: none.",
    )
    oidc_client_id: str | None = Field(None, description="OpenID Connect client ID of this service.")
    oidc_client_secret_file: Path | None = Field(
        None, description="File with the OpenID Connect client secret; default: none, PKCE alone."
    )
    oidc_name: str = Field("your company", max_length=100, description="Name of the company, shown on the login page.")
    dashboard_origin: str | None = Field(
        None,
        pattern=r"^https?://[^/\s]+$",
        description="Origin at which browsers reach the dashboard, such as https://lethe.example.com; letters link to "
        "its /verify page; default: the Host header, and no link in letters.",
    )
    dashboard_session_hours: float = Field(
        12.0, gt=0, le=720, description="Maximum hours for which a login to the dashboard is valid."
    )
    dashboard_idle_minutes: float = Field(
        60.0, gt=1, le=43200, description="Minutes without activity after which a login to the dashboard expires."
    )

    @field_validator("*", mode="before")
    @classmethod
    def _trim(cls, value: object, info: ValidationInfo) -> object:
        if not isinstance(value, str):
            return value
        if str(info.field_name).endswith("_url") and not trimmed(value).isprintable():
            raise ValueError("expected a URL of one line; this one holds a line break or an invisible character")
        return trimmed(value)

    @field_validator("webhook_allowed_networks", "trusted_proxies")
    @classmethod
    def _are_networks(cls, value: str) -> str:
        _networks(value)
        return value

    @model_validator(mode="after")
    def _are_together(self) -> Self:
        if (self.oidc_issuer is None) != (self.oidc_client_id is None):
            raise ValueError("expected LETHE_OIDC_ISSUER and LETHE_OIDC_CLIENT_ID together, or neither")
        return self

    def webhook_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        return _networks(self.webhook_allowed_networks)

    def proxy_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        return _networks(self.trusted_proxies)

    def resolved_database_url(self) -> str:
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{(self.data_dir / 'lethe.db').resolve()}"

    def resolved_admin_key_file(self) -> Path:
        return self.admin_key_file or self.data_dir / "keys" / "admin.key"

    @property
    def in_bucket(self) -> bool:
        """True if weights and rows are stored in a bucket rather than a folder."""
        return self.store_url is not None and self.store_url.startswith("s3://")

    def store_folder(self) -> Path:
        return self.data_dir if self.store_url is None else Path(self.store_url)

    def resolved_tombstones(self) -> Path:
        return self.tombstones or self.data_dir / "tombstones.jsonl"

    def resolved_key_encryption_key_file(self) -> Path:
        return self.key_encryption_key_file or self.data_dir / "keys" / "kek"


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Parse comma-separated IP networks. Raises `ValueError`."""
    return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())
