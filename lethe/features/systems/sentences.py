"""Fixed sentences of a bundle: headlines in English and German, headings and limits."""

from collections.abc import Sequence
from typing import Any

from lethe.features.systems.contract import Grade

_PERSON: dict[Grade, tuple[str, str]] = {
    Grade.PROVED: (
        "Every system that held your data has forgotten you, and for each of them this is proved.",
        "Jedes System, das Ihre Daten hatte, hat Sie vergessen, und für jedes ist das bewiesen.",
    ),
    Grade.RETRAINED_HERMETIC: (
        "Every system has forgotten you: each is proved to have, or was trained again without your data.",
        "Jedes System hat Sie vergessen: Für jedes ist das bewiesen, oder es wurde ohne Ihre Daten neu trainiert.",
    ),
    Grade.RETRAINED_ATTESTED: (
        "Every system has forgotten you; for some of them their operators signed that they trained again without you.",
        "Jedes System hat Sie vergessen; bei einigen haben die Betreiber unterschrieben, ohne Ihre Daten neu trainiert "
        "zu haben.",
    ),
    Grade.SEARCHED: (
        "Your data was erased, or none was found, in every system that was searched; no proof covers all of them.",
        "Ihre Daten wurden in allen durchsuchten Systemen gelöscht oder nicht gefunden; nicht alles ist bewiesen.",
    ),
    Grade.DECLARED: (
        "Some systems still use what they learned, within a limit on you that their operators declared.",
        "Einige Systeme nutzen weiter, was sie gelernt haben, innerhalb einer von den Betreibern erklärten Grenze "
        "für Sie.",
    ),
    Grade.ACKNOWLEDGED: (
        "Every system confirmed that it erased your data; for some of them we have only that confirmation.",
        "Jedes System hat die Löschung Ihrer Daten bestätigt; bei einigen liegt uns nur diese Bestätigung vor.",
    ),
    Grade.NOT_REACHED: (
        "At least one system has not been shown to have forgotten you.",
        "Für mindestens ein System ist nicht gezeigt, dass es Sie vergessen hat.",
    ),
}
_OFFICER: dict[Grade, tuple[str, str]] = {
    Grade.PROVED: ("Weakest grade: proved by a certificate", "Schwächster Grad: durch ein Zertifikat bewiesen"),
    Grade.RETRAINED_HERMETIC: (
        "Weakest grade: trained again by Lethe in isolation",
        "Schwächster Grad: von Lethe abgeschottet neu trainiert",
    ),
    Grade.RETRAINED_ATTESTED: (
        "Weakest grade: trained again, as the system signed",
        "Schwächster Grad: neu trainiert, laut Unterschrift des Systems",
    ),
    Grade.SEARCHED: ("Weakest grade: searched by Lethe", "Schwächster Grad: von Lethe durchsucht"),
    Grade.DECLARED: ("Weakest grade: declared by a ledger", "Schwächster Grad: durch ein Kontobuch erklärt"),
    Grade.ACKNOWLEDGED: (
        "Weakest grade: acknowledged by the system, not verified",
        "Schwächster Grad: vom System bestätigt, nicht geprüft",
    ),
    Grade.NOT_REACHED: ("Weakest grade: not reached", "Schwächster Grad: nicht erreicht"),
}
HEADINGS: list[dict[str, Any]] = [
    {"heading": "Model design", "fields": ["map", "method"]},
    {"heading": "Model analysis", "fields": ["numbers", "limits"]},
    {"heading": "Model testing and resistance to attacks", "fields": ["evidence.jws: audit of each certificate"]},
    {"heading": "Documentation", "fields": ["evidence", "opened_at", "ended_at", "grade"]},
]
"""Elements by which EDPB Opinion 28/2024 (section 3.2.2) assesses an AI model, and the fields that bear on each."""
LIMITS = [
    "The headline is the weakest grade; a stronger grade of one system says nothing about another.",
    "Only systems that were registered when the request was accepted are asked.",
    "What a system held before its map was complete may not be found.",
    "The bundle documents one request; it is no statement that a model is anonymous, and no impact assessment.",
]
NO_JOINT = (
    "No joint number is stated: a model has not forgotten yet, or the number includes models that were certified for "
    "an earlier request of the person."
)


def headline(grade: Grade, names: Sequence[str]) -> dict[str, Any]:
    """Return the headline of a bundle in English and German; `names` are those of the systems with this grade."""
    person, officer, systems = _PERSON[grade], _OFFICER[grade], ", ".join(names)
    return {
        "grade": grade.value,
        "person": {"en": person[0], "de": person[1]},
        "officer": {"en": f"{officer[0]} ({systems}).", "de": f"{officer[1]} ({systems})."},
    }
