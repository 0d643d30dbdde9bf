"""The times of calls do not reveal to a caller whether the person of a request is held."""

import time

import httpx
import pytest

from app.config import Settings
from benchmarks.timing import Attack, wait_until_idle
from examples.adult.demo import HERE as ADULT, service
from lethe import Client

TRIALS = 40
"""Number of trials, half of them of held people: the standard error of an AUC of 0.5 is 0.09."""
MAX_CHANCE = 1e-4
"""Probability with which the test of an AUC fails although calls take the same time. An AUC of 0.83 is that far from
0.5. `./dev bench timing` measures any number of trials, with other callers."""
REPEATS = 60
"""Number of requests about one person before the next call, which revealed most while work began at each request."""


@pytest.mark.soak
@pytest.mark.service
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)], indirect=True, scope="session"
)
def test_the_next_call_does_not_reveal_who_is_held(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that a key's next call takes does not reveal whether the previous request was about a held person. If
    the time is used as a predictor of this, the AUC lies in the range that random order produces 9,999 times in
    10,000."""
    monkeypatch.setenv("LETHE_DATABASE_URL", settings.resolved_database_url())
    admin_key = settings.resolved_admin_key_file().read_text().strip()
    elsewhere = settings.model_copy(update={"port": 0})
    with service(elsewhere, leave_running=False) as address, Client(address, admin_key) as admin:
        people = admin.datasets.upload(ADULT / "train.csv", name="adult", schema=ADULT / "schema.json")
        admin.models.wait(admin.models.create(name="income", dataset_id=people.id).id)
        head = {"Authorization": f"Bearer {admin.api_keys.create(name='app', scopes=['requests:write']).key}"}
        with httpx.Client(base_url=address, headers=head, timeout=120) as client:
            attack = Attack(
                client=client,
                idle=lambda: wait_until_idle(admin),
                held=[f"train-{trial:05d}" for trial in range(TRIALS)],
                repeats=REPEATS,
                seed=time.time_ns(),
            )
            next_call, _ = attack.run(trials=TRIALS)
    assert next_call.chance > MAX_CHANCE, f"the next call tells: {next_call}"
