"""Attack on the time of calls: a key asks to forget somebody, then times its own next call: `./dev bench timing`.

In half of the trials, in random order, rows of that person are held; in the other half nothing is held. The attack
guesses from the time of the next call about a stranger, and from the mean of all such calls within a few seconds.
Prints the area under the ROC curve (AUC) of each guess: 0.5 is a coin toss, 1.0 a certainty.
"""

import argparse
import contextlib
import itertools
import math
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from scipy.stats import mannwhitneyu

from app.config import Settings
from examples.adult.demo import HERE as ADULT, learn, service
from lethe import Client

PLACE = "/v1/deletion-requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Separation:
    """Area under the ROC curve of a guess, and its standard error if both arms have the same distribution.

    `chance` is the exact probability of an AUC at least as far from 0.5 if they have (Mann and Whitney's test).
    """

    auc: float
    error: float
    chance: float

    @classmethod
    def of(cls, held: list[float], unknown: list[float]) -> "Separation":
        m, n = len(held), len(unknown)
        test = mannwhitneyu(held, unknown, method="exact")
        return cls(auc=test.statistic / (m * n), error=math.sqrt((m + n + 1) / (12 * m * n)), chance=test.pvalue)

    @property
    def deviations(self) -> float:
        return abs(self.auc - 0.5) / self.error

    def __str__(self) -> str:
        return f"AUC {self.auc:.2f} +- {self.error:.2f} ({self.deviations:.1f} standard errors from 0.5)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """Attack by a key with requests:write.

    `held` are people of whom rows are held, one per trial. `repeats` is the number of requests about the person,
    `watch` the number of seconds for which calls are timed, and `idle` returns after all work has ended.
    """

    client: httpx.Client
    idle: Callable[[], object]
    held: Sequence[str]
    repeats: int = 1
    watch: float = 0.0
    seed: int = 0

    def run(self, *, trials: int) -> tuple[Separation, Separation]:
        """Return the separation by the next call, and by the mean of all calls that are timed."""
        dice = random.Random(self.seed)
        arms = [True, False] * (trials // 2)
        dice.shuffle(arms)
        seen: dict[bool, list[list[float]]] = {True: [], False: []}
        for trial, held in enumerate(arms):
            self.idle()
            time.sleep(dice.uniform(0.05, 1.05))
            person = self.held[trial] if held else f"unknown-{self.seed}-{trial}"
            body = {"requests": [{"subject_id": person}] * self.repeats}
            self.client.post(f"{PLACE}:batch", json=body).raise_for_status()
            began = time.perf_counter()
            times = [self._ask(f"stranger-{self.seed}-{trial}")]
            while time.perf_counter() - began < self.watch:
                time.sleep(dice.uniform(0.0, 0.02))
                times.append(self._ask(f"stranger-{self.seed}-{trial}-{len(times)}"))
            seen[held].append(times)
        next_call = [[times[0] for times in seen[arm]] for arm in (True, False)]
        watched = [[statistics.fmean(times) for times in seen[arm]] for arm in (True, False)]
        for name, values in (("held", next_call[0]), ("unknown", next_call[1])):
            low, middle, high = (1000 * value for value in np.quantile(values, [0.1, 0.5, 0.9]))
            print(f"    next call, {name}: {low:.2f} / {middle:.2f} / {high:.2f} ms (10 %, median, 90 %)")
        return Separation.of(*next_call), Separation.of(*watched)

    def _ask(self, subject: str) -> float:
        began = time.perf_counter()
        self.client.post(PLACE, json={"subject_id": subject}).raise_for_status()
        return time.perf_counter() - began


@contextlib.contextmanager
def load(address: str, key: str, *, callers: int, seed: int = 0) -> Iterator[None]:
    """Let other callers ask about strangers until the block ends, with random pauses."""
    ended = threading.Event()

    def ask(number: int) -> None:
        dice = random.Random(f"{seed} {number}")
        with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=120) as client:
            while not ended.wait(dice.expovariate(1 / 0.05)):
                client.post(PLACE, json={"subject_id": f"other-{seed}-{number}-{dice.random()}"}).raise_for_status()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=60, help="of each attack")
    parser.add_argument("--repeats", type=int, nargs="*", default=[1, 60], help="requests about the person in a trial")
    parser.add_argument("--callers", type=int, nargs="*", default=[0, 4], help="how many others call meanwhile")
    parser.add_argument("--watch", type=float, default=2.0, help="seconds for which calls are timed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), port=0)
        with service(settings, leave_running=False) as address:
            admin_key = settings.resolved_admin_key_file().read_text().strip()
            with Client(address, admin_key) as admin:
                people = admin.datasets.upload(ADULT / "train.csv", name="adult", schema=ADULT / "schema.json")
                learn(admin, admin.models.create(name="income", dataset_id=people.id).id)
                keys = [admin.api_keys.create(name="app", scopes=["requests:write"]).key for _ in range(2)]
                for number, (callers, repeats) in enumerate(itertools.product(given.callers, given.repeats)):
                    head = {"Authorization": f"Bearer {keys[0]}"}
                    with (
                        httpx.Client(base_url=address, headers=head, timeout=120) as client,
                        load(address, keys[1], callers=callers, seed=number),
                    ):
                        attack = Attack(
                            client=client,
                            idle=lambda: wait_until_idle(admin),
                            held=[f"train-{1000 * number + trial:05d}" for trial in range(given.trials)],
                            repeats=repeats,
                            watch=given.watch,
                            seed=number,
                        )
                        next_call, watched = attack.run(trials=given.trials)
                    print(f"{callers} other callers, {repeats} requests about the person", flush=True)
                    print(f"    next call: {next_call}")
                    print(f"    mean of the calls of {given.watch:g} s: {watched}", flush=True)


def wait_until_idle(admin: Client) -> None:
    """Wait until no request waits for a worker."""
    while any(admin.deletion_requests.count(status=status).count for status in ("accepted", "running")):
        time.sleep(0.05)


if __name__ == "__main__":
    main()
