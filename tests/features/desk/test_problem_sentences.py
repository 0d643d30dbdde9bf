"""Sentences of problems: each is a template with facts, which a page translates and fills in."""

import collections
import inspect

import pytest

from app.features.desk import wording
from app.features.desk.languages import speaking
from lethe.contract import problems
from lethe.contract.problems import Sentence
from lethe.contract.sets import DamageKind
from tests.features.desk import catalogue, problem_sentences
from tests.features.desk.browsing import Browser
from tests.tables import each

FREE = {
    "app/catalogue/mechanisms.py": 2,
    "app/features/calculator/endpoints.py": 3,
    "app/features/networks/service.py": 4,
    "app/installations.py": 2,
    "app/key_checks.py": 4,
    "lethe/features/networks/encoders/process.py": 1,
    "lethe/verification/certificates.py": 3,
    "lethe/verification/exports.py": 4,
    "lethe/verification/ledgers.py": 14,
    "lethe/verification/proof_files.py": 6,
}
"""Number of places whose detail no catalogue can know, by module: reasons of theorems and of other processes, reports
at the start of a process, and verdicts about files. Pages show them in English. The list only gets shorter."""
DECLARED = [
    (kind, name, template)
    for kind, templates in problem_sentences.declared().items()
    for name, template in templates.items()
]


@each(("kind", "name", "template"), DECLARED)
def test_each_template_creates_its_problem(kind: str, name: str, template: str) -> None:
    """Each template creates a problem whose detail is the template filled in with the facts."""
    condition = problem_sentences.CONDITIONS[kind]
    make = condition if name == "template" else getattr(condition, name)
    facts = dict.fromkeys(problem_sentences.places_of(template), 7)
    error = make(**facts)
    assert type(error) is condition
    assert error.detail == str(error) == template.format(**facts)
    assert (error.detail.template, error.detail.facts) == (template, facts) if facts else True
    assert inspect.signature(condition).parameters.keys().isdisjoint(facts)


@pytest.mark.slow
def test_every_raised_problem_uses_a_template() -> None:
    """Every place in the code that raises a problem uses a template, directly or through its class, and passes exactly
    the template's facts."""
    places = list(problem_sentences.raised())
    assert len(places) > 250
    for place in places:
        if place.text is not None and place.facts:
            assert problem_sentences.places_of(place.text) == place.facts, place
        elif place.text is not None:
            # A text without facts is not filled in: its braces are those of an example.
            assert all(not name.isidentifier() for name in problem_sentences.places_of(place.text)), place
    free = collections.Counter(place.place.split()[0] for place in places if place.text is None)
    assert free == FREE


@pytest.mark.parametrize("language", ["de"])
def test_every_sentence_of_a_problem_is_translated(language: str) -> None:
    """The catalogue translates the template of each problem and each literal text, and each translation contains the
    same facts."""
    translations = {one.id: one.string for one in catalogue.read(catalogue.path_of(language), language)}
    texts = {template for _, _, template in DECLARED} | set(problem_sentences.texts())
    assert len(texts) > 250
    for text in texts:
        assert translations.get(text), text
        if "{}" not in text and text in {template for _, _, template in DECLARED}:
            assert problem_sentences.places_of(translations[text]) == problem_sentences.places_of(text)


def test_facts_are_in_the_language_of_the_page() -> None:
    """A page shows numbers, statuses, kinds of damage and nested sentences in its own language. The API keeps them in
    English."""
    spent = problems.AdaptiveBudgetSpent(dataset_id="ds_1", mu=1.25, spent=1.2)
    waiting = problems.ModelNotLive(model_id="mdl_1", status="learning")
    limited = problems.RateLimited(reason=Sentence("Too many logins were begun from this address."), seconds=9)
    damaged = problems.DatasetDamaged.found("ds_1", DamageKind.BLOCK, 3)
    with speaking("de"):
        assert "mu = 1,25, wovon 1,2 verbraucht sind" in wording.message(spent.detail)
        assert "/v1/models/{model_id}" in wording.message(spent.detail)
        assert "hat den Status „Lernen“" in wording.message(waiting.detail)
        assert wording.message(limited.detail).endswith("Anmeldungen begonnen. Wiederholen Sie den Aufruf in 9 s.")
        assert "nicht die verzeichneten (Block, Block 3)" in wording.message(damaged.detail)
    assert wording.message(waiting.detail) == "Model mdl_1 is learning; wait until its first version is published."
    assert "(block of block 3)" in damaged.detail


@each(
    ("path", "expected"),
    [
        ("/admin/models/mdl_0", "Es gibt kein Modell &#39;mdl_0&#39;; GET /v1/models listet sie auf."),
        ("/admin/requests/dr_0", "Es gibt keinen Löschantrag &#39;dr_0&#39;."),
        ("/admin/datasets/ds_0", "Es gibt keinen Datenbestand &#39;ds_0&#39;; GET /v1/datasets listet sie auf."),
        ("/admin/runs/run_0", "Es gibt keinen Lauf &#39;run_0&#39;."),
    ],
)
def test_a_problem_is_translated_with_its_facts(officer: Browser, path: str, expected: str) -> None:
    """A problem's page shows the German sentence with the problem's facts and marks no part of it as English."""
    officer.post("/admin/language", language="de", next="/admin")
    page = officer.get(path).text.split('<main id="main"')[1]
    assert expected in page
    assert 'lang="en"' not in page
