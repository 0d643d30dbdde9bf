"""Commands about webhook deliveries."""

from lethe.cli.derived import add_group, derive
from lethe.features.webhooks.contract import DeliveryOut

add_group("webhooks", "webhook", "Payloads sent to callback receivers.")


def _line_of(delivery: DeliveryOut) -> str:
    attempts = f"{delivery.attempts} attempts" + (f", {delivery.error}" if delivery.error else "")
    state = f"{delivery.status:<9}  {delivery.request_id}  {delivery.event}"
    return f"{delivery.id}  {state}  {delivery.host}  {attempts}"


derive("webhooks.list", line=_line_of)
