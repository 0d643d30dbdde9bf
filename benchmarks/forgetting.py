"""The picture of the README: `./dev bench forgetting` writes docs/forgetting.svg.

Five people of the census of examples/adult ask to be forgotten, one after the other, of a model with the default
mechanism. What is left of each of them, step by step, is the `deletion` guarantee of the service's own accountant
(docs/mathematics/curve.md); nothing is learned or drawn at random, so the same picture comes out each time.
"""

from dataclasses import dataclass

from app.unlearning import planner
from benchmarks import page
from lethe.proof import accountant, calibration, conversion
from lethe.proof.accountant import Chain, Run

PICTURE = page.ROOT / "docs" / "forgetting.svg"
NUM_SLOTS, NUM_CLASSES, NUM_PARAMETERS = 32_561, 2, 105
EPSILON, DELTA = 1.0, NUM_SLOTS**-1.1
PEOPLE = 5
STRIDE = 12
"""Steps from one point of a curve to the next."""

WIDTH, HEIGHT = 760, 360
LEFT, RIGHT, TOP, BOTTOM = 52, 696, 50, 306
MAX_PASSES, MAX_EPSILON = 16.0, 1.8
"""At the right and at the top."""

STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #424a53; stroke: #ffffff; stroke-width: 4px; paint-order: stroke; }
.card { fill: #ffffff; stroke: #d0d7de; }
.grid { stroke: #d8dee4; }
.target { stroke: #cf222e; stroke-dasharray: 5 4; }
.target-text { fill: #cf222e; }
.title { font-weight: 600; fill: #1f2328; }
.person { fill: none; stroke: #8c959f; stroke-width: 1.5; }
.first { fill: none; stroke: #0969da; stroke-width: 3; }
.first-text { fill: #0969da; font-weight: 600; }
.version { fill: #1f2328; }
@media (prefers-color-scheme: dark) {
  text { fill: #b1bac4; stroke: #0d1117; }
  .card { fill: #0d1117; stroke: #30363d; }
  .grid { stroke: #21262d; }
  .target { stroke: #ff7b72; }
  .target-text { fill: #ff7b72; }
  .title { fill: #f0f6fc; }
  .person { stroke: #768390; }
  .first { stroke: #58a6ff; }
  .first-text { fill: #58a6ff; }
  .version { fill: #f0f6fc; }
}"""


Curve = tuple[tuple[float, float], ...]
"""Passes over the rows since the first request, and the epsilon that is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A curve for each person, from when they ask, and the passes after which each run publishes its version."""

    people: tuple[Curve, ...]
    versions: tuple[float, ...]


def main() -> None:
    found = life()
    PICTURE.write_text(drawn(found))
    for number, curve in enumerate(found.people):
        asked, published = curve[0], at(curve, found.versions[number])
        print(f"person {number + 1}: {asked[1]:.3f}, {published:.3f} when published, {curve[-1][1]:.3f} at the end")


def life() -> Life:
    mechanism = calibration.mechanism_for(
        calibration.ModelSettings(epsilon=EPSILON, delta=DELTA),
        num_slots=NUM_SLOTS,
        num_classes=NUM_CLASSES,
        num_parameters=NUM_PARAMETERS,
    )
    chain = accountant.replay(mechanism, [Run(steps=mechanism.learn_steps)])
    present: list[int] = []
    curves: list[list[tuple[float, float]]] = []
    versions = []
    for _ in range(PEOPLE):
        plan = planner.forget(chain, records=1, epsilon=EPSILON, delta=DELTA)
        present.append(chain.steps)
        curves.append([])
        for step in [*range(0, plan.steps, STRIDE), plan.steps]:
            here = (
                accountant.advance(chain, Run(steps=step, records=1)) if step else accountant.erased(chain, records=1)
            )
            passes = (here.steps - present[0]) / mechanism.num_batches
            for steps_present, curve in zip(present, curves, strict=True):
                curve.append((passes, left_of(here, steps_present=steps_present)))
        chain = here
        versions.append(passes)
    return Life(people=tuple(map(tuple, curves)), versions=tuple(versions))


def left_of(chain: Chain, *, steps_present: int) -> float:
    mu = accountant.deletion_mu(chain, records=1, steps_present=steps_present)
    return conversion.gdp_epsilon(mu=mu, delta=DELTA)


def at(curve: Curve, passes: float) -> float:
    """The epsilon of the last point there."""
    return [epsilon for there, epsilon in curve if there == passes][-1]


def best_attacker(epsilon: float) -> str:
    """The share of right answers of whoever knows everything but the noise."""
    mu = conversion.gdp_mu(epsilon=epsilon, delta=DELTA) if epsilon else 0.0
    return f"{100 * conversion.gdp_balanced_accuracy(mu=mu):.3g} %"


# --- what is drawn ---------------------------------------------------------------------------------------------------


def drawn(found: Life) -> str:
    """An SVG that follows the reader's choice of light or dark, on a card of its own."""
    first = found.people[0]
    asked, published, last = first[0][1], at(first, found.versions[0]), first[-1][1]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t d">',
        '<title id="t">What is left of people who asked to be forgotten</title>',
        f'<desc id="d">Of the first of {PEOPLE} people epsilon {asked:.3f} is left when they ask, {published:.3f} when'
        f" the next version is published, and {last:.3f} once everybody else is forgotten too.</desc>",
        f"<style>\n{STYLE}\n</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>',
        text(16, 28, "What is left of a person (epsilon)", css="title"),
        text(WIDTH - 16, 28, "best attacker is right", anchor="end"),
    ]
    for epsilon in (0.0, 0.5, EPSILON, 1.5):
        css = "target" if epsilon == EPSILON else "grid"
        parts.append(f'<line class="{css}" x1="{LEFT}" x2="{RIGHT}" y1="{y(epsilon):.1f}" y2="{y(epsilon):.1f}"/>')
        parts.append(text(LEFT - 10, y(epsilon) + 4, f"{epsilon:.1f}", anchor="end"))
        parts.append(text(RIGHT + 8, y(epsilon) + 4, best_attacker(epsilon)))
    for passes in range(0, 16, 5):
        parts.append(text(x(passes), BOTTOM + 20, str(passes), anchor="middle"))
    parts.append(text(LEFT, BOTTOM + 42, "passes over the rows since the first request"))
    parts += [polyline(curve, css="person") for curve in reversed(found.people[1:])]
    parts.append(polyline(first, css="first"))
    for published_at, curve in zip(found.versions, found.people, strict=True):
        here = f'cx="{x(published_at):.1f}" cy="{y(at(curve, published_at)):.1f}"'
        parts.append(f'<circle class="version" {here} r="3.5"/>')
    parts += [
        text(x(0), TOP + 10, "1st", css="first-text"),
        *(
            text(x(curve[0][0]), TOP + 10, name, anchor="middle")
            for name, curve in zip(("2nd", "3rd", "4th", "5th asks"), found.people[1:], strict=True)
        ),
        text(x(0.6), y(0.14), "the first goes on being forgotten", css="first-text"),
        text(x(8.5), y(EPSILON) - 8, "target of every version", css="target-text"),
        text(RIGHT, BOTTOM + 42, "● a version is published", anchor="end"),
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def x(passes: float) -> float:
    return LEFT + (RIGHT - LEFT) * passes / MAX_PASSES


def y(epsilon: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * epsilon / MAX_EPSILON


def text(across: float, down: float, words: str, *, anchor: str = "start", css: str | None = None) -> str:
    styled = f' class="{css}"' if css else ""
    return f'<text{styled} x="{across:.1f}" y="{down:.1f}" text-anchor="{anchor}">{words}</text>'


def polyline(curve: Curve, *, css: str) -> str:
    points = " ".join(f"{x(passes):.1f},{y(epsilon):.1f}" for passes, epsilon in curve)
    return f'<polyline class="{css}" points="{points}"/>'


if __name__ == "__main__":
    main()
