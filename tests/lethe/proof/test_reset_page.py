"""The table of docs/mathematics/reset.md: what a different start would save."""

from pathlib import Path

import pytest

from lethe.proof import accountant, calibration
from lethe.proof.accountant import Chain, Run

PAGE = Path(__file__).parents[3] / "docs" / "mathematics" / "reset.md"
MOST = 10**6


@pytest.mark.slow
def test_the_table_matches_the_accountant() -> None:
    """Recomputing each row of the table gives the same numbers of passes: for training, for a reset, and for the
    shortest training from any start after which a request takes at most a tenth more steps than usual."""
    section = PAGE.read_text().split("## What a start would save")[1].split("## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == 12
    for _, num_rows, classes, radius, *said in rows:
        slots, wide = int(num_rows.replace(",", "")), 20.0 if radius == "20" else None
        assert [f"{passes:.3g}" for passes in computed(slots, int(classes), wide)] == said


def computed(slots: int, classes: int, radius: float | None) -> tuple[float, float, float]:
    delta = slots**-1.1
    made = calibration.mechanism_for(
        calibration.ModelSettings(epsilon=1.0, delta=delta, radius=radius), num_slots=slots, num_classes=classes
    )
    start = accountant.imported(made)

    def least(chain: Chain, records: int) -> int:
        return calibration.least_steps(chain, records=records, epsilon=1.0, delta=delta, at_most=MOST)

    reset = least(start, 0)
    usual = least(accountant.replay(made, [Run(steps=made.learn_steps)]), 1)
    low, high = reset, 4 * made.learn_steps
    while high - low > 1:
        middle = (low + high) // 2
        as_good = least(accountant.advance(start, Run(steps=middle)), 1) <= 1.1 * usual
        low, high = (low, middle) if as_good else (middle, high)
    return made.learn_steps / made.num_batches, reset / made.num_batches, high / made.num_batches
