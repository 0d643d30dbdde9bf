"""The same requesters against noisy gradient descent: the production chain, with people chosen to be easy to attack.

Three coordinates. Most people (the crowd) pull the first far out. The person in question lies mostly along the second,
which nobody else touches, so that their influence fades as slowly as it can, and a little along the first, so that the
model gets them wrong and their gradient is close to the longest there is. The third is for requesters to write on.
In the other world the person's row has been null from the start: that is the comparison of `deletion` and `adaptive`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.attacks.life import Life, Version, delta_of, mechanism_of
from benchmarks.attacks.measured import Certified, guesses
from benchmarks.attacks.reading import Array, Group, by_discriminant, variance, without_noise
from lethe.proof import accountant, calibration
from lethe.proof.accountant import Run
from lethe.proof.canary_test import Guesses
from lethe.proof.mechanism import Mechanism

PEOPLE = 400
TARGET = slice(0, 1)
EITHER, OTHER = slice(1, 41), slice(41, 81)
"""Two groups that pull the third coordinate in opposite directions: of one label, and of the other."""
CROWD = 81
BATCH = 10
STEPS = 8
"""Of every run that deletes or overwrites a few: seven more than the planner asks for one person."""
SHORT_STEPS = 2
RELEASES_SEEN = (1, 2, 4, 8)
L2 = 0.02

ALONG = 0.5
ROW_OF_CROWD, ROW_OF_TARGET, ROW_TO_WRITE_ON = (
    np.array(row) * (1 - 1e-6) for row in ((1, 0, 0), (ALONG, np.sqrt(1 - ALONG**2), 0), (0, 0, 1))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """What is played after learning: `play` returns all versions, the first included.

    `runs`: those that follow, as the accountant is told of them. The person is deleted before `runs[deleted]`.
    """

    play: Callable[[Life, "Setting"], list[Version]]
    runs: tuple[Run, ...]
    deleted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    mechanism: Mechanism
    threshold: float
    """Of the second coordinate of the first version: below it the requester says "in"."""
    late_threshold: float
    """The same of the last version of `last_of_many` with the person in it."""
    group_steps: int
    """What the planner asks for a person and one of the two groups."""

    def said_in(self, version: Version) -> bool:
        return bool(version[1] < self.threshold)

    def certified(self, game: Game) -> Certified:
        learning = Run(steps=self.mechanism.learn_steps)
        return Certified(mechanism=self.mechanism, runs=(learning, *game.runs), deleted_before=1 + game.deleted)


def setting() -> Setting:
    mechanism = mechanism_of(people=PEOPLE, columns=3, l2=L2)
    chain = accountant.replay(mechanism, [Run(steps=mechanism.learn_steps)])
    group_steps = calibration.least_steps(
        chain, records=41, epsilon=1.0, delta=delta_of(mechanism), at_most=mechanism.learn_steps
    )
    here, early, late = np.zeros((2, 3)), [], []
    for world, present in enumerate((1, 0)):
        first = without_noise(here[world : world + 1], mechanism, groups(present), steps=mechanism.learn_steps)
        early.append(first[0, 1])
        late.append(without_noise(first, mechanism, groups(present), steps=4 * SHORT_STEPS)[0, 1])
    return Setting(
        mechanism=mechanism,
        threshold=float(np.mean(early)),
        late_threshold=float(np.mean(late)),
        group_steps=group_steps,
    )


def people(present: bool) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    features = np.zeros((PEOPLE, 3), np.float32)
    labels = np.ones(PEOPLE, np.int32)
    features[CROWD:], features[1:CROWD] = ROW_OF_CROWD, ROW_TO_WRITE_ON
    labels[TARGET], labels[OTHER] = 0, 0
    if present:
        features[TARGET] = ROW_OF_TARGET
    return features, labels


def groups(present: int, *, written: int = 0, label: Array | float = 1.0) -> list[Group]:
    """The same people to an attacker who knows everybody; so many of the crowd have been overwritten."""
    balanced = [(ROW_TO_WRITE_ON, sign, 40.0) for sign in (1.0, -1.0)]
    crowd = (ROW_OF_CROWD, 1.0, float(PEOPLE - CROWD - written))
    return [crowd, *balanced, (ROW_TO_WRITE_ON, label, float(written)), (ROW_OF_TARGET, -1.0, float(present))]


# --- what requesters do ----------------------------------------------------------------------------------------------


def copying(life: Life, at: Setting) -> list[Version]:
    """The median's requester: three times ten of the crowd become what the first version said; then the person goes."""
    said, versions = at.said_in(life.version), [life.version]
    for number in range(3):
        life.overwrite(_batch(number), ROW_TO_WRITE_ON, int(said))
        versions.append(life.publish(STEPS))
    life.null(TARGET)
    return [*versions, life.publish(STEPS)]


def choosing(life: Life, at: Setting) -> list[Version]:
    """Equations 7 and 8: the person goes together with one group or the other, by what the first version said."""
    said, first = at.said_in(life.version), life.version
    life.null(TARGET)
    life.null(OTHER if said else EITHER)
    return [first, life.publish(at.group_steps)]


def waiting(life: Life, at: Setting) -> list[Version]:
    """The counter's reader: the person goes, then others, one after the other, who do not choose by what they read."""
    versions = [life.version]
    life.null(TARGET)
    for number in range(RELEASES_SEEN[-1]):
        versions.append(life.publish(STEPS))
        life.null(slice(CROWD + number, CROWD + number + 1))
    return versions


def copying_late(life: Life, at: Setting) -> list[Version]:
    """The counterexample to 4.1: the person goes; then what the first version said is written; then another leaves."""
    said, versions = at.said_in(life.version), [life.version]
    life.null(TARGET)
    versions.append(life.publish(STEPS))
    life.overwrite(_batch(0), ROW_TO_WRITE_ON, int(said))
    versions.append(life.publish(STEPS))
    life.null(_batch(1))
    return [*versions, life.publish(STEPS)]


def last_of_many(life: Life, at: Setting) -> list[Version]:
    """The counterexample to 4.3: of five versions with the person in them only the last, of a short run, is read."""
    versions = [life.version]
    for _ in range(4):
        versions.append(life.publish(SHORT_STEPS))
    said = bool(life.version[1] < at.late_threshold)
    life.null(TARGET)
    life.null(OTHER if said else EITHER)
    return [*versions, life.publish(at.group_steps)]


def _batch(number: int) -> slice:
    return slice(CROWD + BATCH * number, CROWD + BATCH * (number + 1))


def games(at: Setting) -> dict[str, Game]:
    one, group = Run(steps=STEPS, records=1), Run(steps=at.group_steps, records=41)
    written = Run(steps=STEPS, corrected=BATCH)
    several = Run(steps=STEPS, records=BATCH)
    return {
        "copying": Game(play=copying, runs=(written, written, written, one), deleted=3),
        "choosing": Game(play=choosing, runs=(group,), deleted=0),
        "waiting": Game(play=waiting, runs=(one,) * RELEASES_SEEN[-1], deleted=0),
        "copying late": Game(play=copying_late, runs=(one, written, several), deleted=0),
        "last of many": Game(play=last_of_many, runs=(*(Run(steps=SHORT_STEPS),) * 4, group), deleted=4),
    }


# --- what is played, and what is read ------------------------------------------------------------------------------


def played(at: Setting, trials: Iterable[int]) -> dict[str, Array]:
    """By game all versions, of the world with the person and of that without  # (trials, 2, versions, 3)

    Each trial learns two models, and every game goes on from these: samples of one game are independent.
    """
    rows = [people(present) for present in (True, False)]
    found: dict[str, list[list[list[Version]]]] = {name: [] for name in games(at)}
    for _ in trials:
        lives = [Life.learned(at.mechanism, features.copy(), labels) for features, labels in rows]
        for name, game in games(at).items():
            found[name].append([game.play(life.branch(), at) for life in lives])
    return {name: np.array(versions) for name, versions in found.items()}


def read(at: Setting, found: dict[str, Array]) -> dict[str, tuple[str, Guesses]]:
    """The game and the guesses of every view; `found`: what was played."""
    copied, chosen, waited = found["copying"], found["choosing"], found["waiting"]
    late, last = found["copying late"], found["last of many"]
    views = {
        "median, one release": ("copying", _by_writing(copied)),
        "median, every release": ("copying", _by_likelihood(at, copied)),
        "sum, one release": ("choosing", _by_writing(chosen)),
        "pad, first release": ("copying late", by_discriminant(late[:, 0, 1], late[:, 1, 1])),
        "pad, all releases": ("copying late", by_discriminant(late[:, 0, 1:], late[:, 1, 1:])),
        "parity, one release": ("last of many", _by_writing(last)),
    }
    for releases in RELEASES_SEEN:
        seen = waited[:, :, 1 : 1 + releases]
        views[f"counter, {releases}"] = ("waiting", by_discriminant(seen[:, 0], seen[:, 1]))
    return views


def tests_of(at: Setting, chosen: Array) -> tuple[Guesses, Guesses]:
    """The two tests of Theorem 4.5, in the game of choosing: of learning, was the person in; of the deletion's run,
    which group was chosen."""
    said = chosen[:, :, 0, 1] < at.threshold
    which = chosen[:, :, -1, 2] > 0
    return guesses(said[:, 0], said[:, 1]), guesses(which[said], which[~said])


def _by_writing(versions: Array) -> Guesses:
    """The sign of the third coordinate of the last version."""
    return guesses(versions[:, 0, -1, 2] > 0, versions[:, 1, -1, 2] > 0)


def _by_likelihood(at: Setting, versions: Array) -> Guesses:
    """Every version with the person in it, given the one before: how much likelier is it with them than without?"""
    return guesses(*(_likelihood(at, versions[:, world]) > 0 for world in (0, 1)))


def _likelihood(at: Setting, versions: Array) -> Array:
    """Of the game of copying  # (trials, versions, 3) -> (trials,)"""
    said = np.where(versions[:, 0, 1] < at.threshold, 1.0, -1.0)
    total, start = np.zeros(len(versions)), np.zeros((1, 3))
    for number in range(versions.shape[1] - 1):
        steps, label = (STEPS, said) if number else (at.mechanism.learn_steps, 1.0)
        known = [groups(present, written=BATCH * number, label=label) for present in (1, 0)]
        with_them, without = (without_noise(start, at.mechanism, rows, steps=steps)[:, 1] for rows in known)
        moved = with_them - without
        total += moved * (versions[:, number, 1] - without - moved / 2) / variance(at.mechanism, steps=steps)
        start = versions[:, number]
    return total
