import contextlib
import doctest
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from lethe.features import theorems as bounds
from lethe.features.theorems import CALCULATOR, bound, evaluate
from lethe.features.theorems.bound import Domain, NotionError, Parameter
from lethe.proof.errors import DomainError, PreconditionError, PrivacyError
from tests.tables import each

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())
ALGORITHM = {"Mlip": 1, "m": 0.0119, "n": 11982}
EXAMPLES = {vector["bound"]: vector["given"] for vector in reversed(VECTORS)} | {
    "alg4_sigma": ALGORITHM | {"eps_target": 1.0, "K": 1, "S": 1, "L": 0.2619, "delta": 1e-4},
    "t32_eps": {"alpha": 2, "eps0": 0.1} | next(v["given"] for v in VECTORS if v["bound"] == "t32_rates"),
}
THEOREMS = """
rdp_to_dp_mironov rdp_to_dp_cks rdp_delta_cks rdp_delta_single_order_optimal rdp_linear_mironov rdp_linear_cks
tau_star gdp_delta gdp_eps gdp_mu group_privacy group_privacy_inverse group_privacy_inverse_as_printed
pretrain_then_unlearn eps_hat clopper_pearson_upper eps_lower_cp central_mean_mse local_mean_mse local_unbounded_tau
local_unbounded_mse t31_success t32_count_loss t41_adv t41_adv_plus t43_adaptive t45_threshold g7_rdp g9_rdp
g9_rdp_tight g14_init_variance g15_eps g15_eps_tight g15_K t51 t52 g16 g17 g22 g23 g24 pE1 lsi_cap_log t32_rates
t32_eps t32_sc_eps t33_sc t33_general c34_sequence alg4_sigma alg5_K alg6_K_list insufficient_training savings_sc
n1_sigma n2_d2d contraction shift_mu stationary_mu ru_mu_sequence seq_mu_bound mu_release_segment mu_compose reset_K
greedy_K_schedule cyclic_batches selection_penalty sgd_z sgd_eps_printed theta_hs model_clip_delta grad_clip_rho
koloskova_sigma2
"""
PARAMETERS = [(name, parameter) for name in CALCULATOR for parameter in CALCULATOR[name].parameters]
NUMBERS = [case for case in PARAMETERS if case[1].kind in ("real", "integer")]
LISTS = [case for case in PARAMETERS if case[1].kind in ("reals", "integers", "segments", "words")]
HYPOTHESES = [case for case in PARAMETERS if case[1].refusal]
CHOICES = [case for case in PARAMETERS if case[1].kind == "choice"]


def names(cases: list[tuple[str, Parameter]]) -> list[str]:
    return [f"{name}-{parameter.name}" for name, parameter in cases]


def beyond(domain: Domain) -> list[float]:
    """Return numbers just outside an interval."""
    low, high = map(float, domain.interval[1:-1].split(","))
    below = [low if domain.interval[0] == "(" else low - 1, low - 0.5, -math.inf]
    above = [high] if domain.interval[-1] == ")" else [] if math.isinf(high) else [high + max(1, high)]
    return below + above


@each("vector", VECTORS)
def test_bounds_match_the_example_vectors(vector):
    """Every bound reproduces independently computed example values: integers exactly, and reals to nine digits."""
    results = evaluate(vector["bound"], vector["given"])
    for output, expected in vector["expected"].items():
        match expected:
            case {"first": first, "length": length}:
                assert results[output][: len(first)] == first
                assert len(results[output]) == length
            case int() | [int(), *_]:
                assert results[output] == expected
            case _:
                assert results[output] == pytest.approx(expected, rel=1e-9, abs=0)


def test_every_theorem_has_its_function():
    """The calculator contains exactly the listed theorems, and each of them has an example vector."""
    assert sorted(CALCULATOR) == sorted(THEOREMS.split())
    assert set(EXAMPLES) == set(CALCULATOR)


@each("name", CALCULATOR)
def test_bounds_document_themselves(name):
    """A bound's documentation contains its statement and reference and describes each of its parameters and results."""
    described = CALCULATOR[name]
    assert described.name == name
    for text in (described.title, described.reference, described.statement, *described.assumptions):
        assert len(text) > 4
    for parameter in described.parameters:
        assert parameter.description
        assert (parameter.kind == "choice") == bool(parameter.choices)
        assert not parameter.required or parameter.name in EXAMPLES[name]
    results = described.evaluate(EXAMPLES[name])
    assert results.keys() == described.outputs.keys()
    assert json.loads(json.dumps(results, allow_nan=False)) == results


@each("name", CALCULATOR)
def test_unknown_parameters_are_refused(name):
    """An unknown parameter and a missing required parameter are refused with a specific error."""
    with pytest.raises(DomainError, match="no parameter 'surprise'"):
        evaluate(name, EXAMPLES[name] | {"surprise": 1.0})
    for parameter in CALCULATOR[name].parameters:
        rest = {key: value for key, value in EXAMPLES[name].items() if key != parameter.name}
        if parameter.required:
            with pytest.raises(DomainError, match=f"parameter '{parameter.name}'"):
                evaluate(name, rest)
            with pytest.raises(DomainError, match=parameter.name):
                evaluate(name, rest | {parameter.name: None})


@each(("name", "parameter"), NUMBERS)
def test_numbers_out_of_range_are_refused(name, parameter):
    """A number out of range, NaN, an infinity that the theorem does not allow, or a value of another type is refused
    with a specific error."""
    wrong = [math.nan, True, "one", [1.0], {"value": 1.0}, *beyond(parameter)]
    wrong += [1.5] if parameter.kind == "integer" else []
    wrong += [None] if parameter.required or parameter.default is not None else []
    for value in wrong:
        with pytest.raises(DomainError, match=parameter.name):
            evaluate(name, EXAMPLES[name] | {parameter.name: value})


@pytest.mark.parametrize(("name", "parameter"), LISTS, ids=names(LISTS))
def test_lists_out_of_range_are_refused(name, parameter):
    """A list is refused with a specific error if it is too long, if an entry has the wrong type or is out of range, or
    if the value is not a list."""
    entries = [math.nan, -1.0, True, None] + (
        [[1], [-1, 0.1], [1, math.nan], [1.5, 0.1]] if parameter.kind == "segments" else []
    )
    for value in ["1, 2", 3.0, [1.0] * 10_001, *([entry] for entry in entries)]:
        with pytest.raises(DomainError, match=parameter.name):
            evaluate(name, EXAMPLES[name] | {parameter.name: value})


@pytest.mark.parametrize(("name", "parameter"), CHOICES, ids=names(CHOICES))
def test_unknown_choices_are_refused(name, parameter):
    """A value that is not one of a parameter's choices is refused with a specific error."""
    for value in ("neither", 1, None, [parameter.choices[0]]):
        with pytest.raises(DomainError, match=parameter.name):
            evaluate(name, EXAMPLES[name] | {parameter.name: value})


@each(("name", "parameter"), HYPOTHESES)
def test_denied_hypotheses_raise_an_error(name, parameter):
    """A hypothesis is assumed unless the caller denies it. If the caller denies it, the evaluation raises the error for
    that kind of hypothesis and names it."""
    assert parameter.default is True
    assert evaluate(name, EXAMPLES[name] | {parameter.name: True}) == evaluate(name, EXAMPLES[name])
    with pytest.raises(parameter.refusal, match=f"^{parameter.name}: not established"):
        evaluate(name, EXAMPLES[name] | {parameter.name: False})
    for value in ("yes", 1, None):
        with pytest.raises(DomainError, match=parameter.name):
            evaluate(name, EXAMPLES[name] | {parameter.name: value})


@each(
    ("names_of", "refusal"),
    [
        ("eps_lower_cp: rule_fixed_in_advance independent_runs", PreconditionError),
        ("t45_threshold: lower_limit", PreconditionError),
        ("t32_rates: converged_start bounds_full_gradient", PreconditionError),
        ("lsi_cap_log: bounds_full_gradient", PreconditionError),
        ("t33_general: bounds_full_gradient", PreconditionError),
        ("stationary_mu: converged_start", PreconditionError),
        ("ru_mu_sequence: converged_start", PreconditionError),
        ("seq_mu_bound: converged_start", PreconditionError),
        ("greedy_K_schedule: converged_start", PreconditionError),
        ("mu_release_segment: row_present", PreconditionError),
        ("reset_K: projection", PreconditionError),
        ("selection_penalty: both_runs", PreconditionError),
        ("sgd_z: fixed_order", PreconditionError),
        ("sgd_eps_printed: fixed_order", PreconditionError),
        ("model_clip_delta: noise_every_step", PreconditionError),
        ("grad_clip_rho: noise_every_step", PreconditionError),
        ("pretrain_then_unlearn: uniform_over_starts", NotionError),
        ("t43_adaptive: conditional", NotionError),
        ("g15_eps: non_adaptive", NotionError),
        ("g15_eps_tight: non_adaptive", NotionError),
        ("g15_K: non_adaptive", NotionError),
        ("c34_sequence: non_adaptive", NotionError),
        ("alg6_K_list: non_adaptive", NotionError),
        ("ru_mu_sequence: non_adaptive", NotionError),
        ("seq_mu_bound: non_adaptive", NotionError),
        ("greedy_K_schedule: non_adaptive", NotionError),
        ("n1_sigma: add_remove", NotionError),
        ("n2_d2d: add_remove", NotionError),
    ],
)
def test_unverifiable_hypotheses_are_required(names_of, refusal):
    """A theorem has a hypothesis for each condition that its numbers alone cannot verify, and raises the right kind of
    error if one of them is denied."""
    name, hypotheses = names_of.split(": ")
    for hypothesis in hypotheses.split():
        with pytest.raises(refusal, match=hypothesis):
            evaluate(name, EXAMPLES[name] | {hypothesis: False})


def test_an_unknown_bound_is_refused():
    """Evaluating a bound with an unknown name raises an error."""
    with pytest.raises(DomainError, match="Expected the name of a bound, not 'g8_rdp'"):
        evaluate("g8_rdp", {})


def test_infinity_is_a_string():
    """Because JSON has no infinity, parameters that allow it accept the string "inf", and results contain "inf" or
    "-inf"."""
    assert evaluate("t41_adv", {"q": "inf", "eps": 0.05}) == evaluate("t41_adv", {"q": math.inf, "eps": 0.05})
    assert evaluate("rdp_linear_cks", {"tau": 0.0, "delta": 0.1})["alpha"] == "inf"
    assert evaluate("eps_hat", {"fpr": 1.0, "fnr": 1.0, "delta": 0.0})["eps"] == "-inf"
    with pytest.raises(DomainError, match=r"^Expected alpha=inf in \(1, inf\)$"):
        evaluate("rdp_to_dp_cks", {"alpha": "inf", "rho": 0.1, "delta": 0.1})


def test_reciprocals_of_other_parameters_are_accepted():
    """A real parameter can be given as the reciprocal of another parameter, provided that the other parameter is a
    positive number."""
    given = EXAMPLES["greedy_K_schedule"]
    assert (given["delta"], given["eta"]) == ("1/n", "1/L")
    assert evaluate("greedy_K_schedule", given) == evaluate("greedy_K_schedule", given | {"delta": 1 / 11982})
    for value in (0, -1, "n", True, math.inf):
        with pytest.raises(DomainError):
            evaluate("greedy_K_schedule", given | {"n": value})


def test_integral_floats_are_integers():
    """Floats without a fractional part are accepted as integers."""
    given = EXAMPLES["g7_rdp"]
    assert evaluate("g7_rdp", given | {"K": 100.0}) == evaluate("g7_rdp", given | {"K": 100})


def test_nonfinite_results_are_refused():
    """A result that overflows or is NaN raises an error instead of being returned."""
    with pytest.raises(DomainError, match="floating point"):
        evaluate("g23", {"c": 1e300, "sigma": 1e-200})
    with pytest.raises(DomainError, match="floating point"):
        evaluate("shift_mu", {"z0": 1.0, "segments": [[10**6, 0.1]], "c": 2.0, "eta": 1.0, "sigma": 1.0})


EXTREMES = [0, 1e-300, 1e-9, 0.1, 0.5, 0.99, 1, 1 + 1e-9, 2, 50, 1000, 1e8, 1e15, 1e300]


def extreme(parameter: Parameter) -> st.SearchStrategy[object]:
    """Return a strategy for a parameter's values, mostly at the ends of its range."""
    inside = [value for value in EXTREMES if parameter.interval and parameter.contains(value)]
    whole = [int(value) for value in inside if value == value // 1 <= 1e15 and not (1000 < value < 1e15)]
    match parameter.kind:
        case "real":
            return st.sampled_from(inside)
        case "integer":
            return st.sampled_from([value for value in whole if "summed" not in parameter.description or value <= 1000])
        case "reals":
            return st.lists(st.sampled_from(inside), max_size=3)
        case "integers":
            return st.lists(st.sampled_from(whole), max_size=3)
        case "segments":
            return st.lists(st.tuples(st.sampled_from(whole), st.sampled_from(inside)), max_size=3)
        case "words":
            return st.lists(st.just("deletion"), max_size=3)
        case "choice":
            return st.sampled_from(parameter.choices)
        case "boolean":
            return st.booleans()


@pytest.mark.slow
@pytest.mark.parametrize("name", CALCULATOR)
@given(data=st.data())
@settings(max_examples=30)
def test_extreme_numbers_are_evaluated_or_refused(name, data):
    """For any parameters within their ranges, a bound either returns JSON values or raises a PrivacyError, and never
    fails in any other way."""
    parameters = CALCULATOR[name].parameters
    params = {p.name: data.draw(extreme(p), p.name) for p in parameters if p.required or data.draw(st.booleans())}
    with contextlib.suppress(PrivacyError):
        json.dumps(evaluate(name, params), allow_nan=False)


def test_declarations_need_symbols():
    """A bound cannot be declared if one of its arguments has no symbol."""

    def selection_penalty(alpha: float) -> bound.Outputs:
        return {"add_eps": alpha}

    with pytest.raises(TypeError, match="annotated with a Domain"):
        bound.bound(selection_penalty)


def test_every_table_of_texts_belongs_to_a_bound():
    """`theorems.toml` has exactly one table for each bound."""
    assert bound._texts().keys() == bounds.CALCULATOR.keys()


@pytest.mark.parametrize("module", [bounds, bound], ids=lambda module: module.__name__)
def test_examples_in_docstrings_are_correct(module):
    """The examples in the module's docstrings produce the results shown."""
    failed, attempted = doctest.testmod(module)
    assert attempted
    assert not failed


def test_the_documented_number_of_theorems_is_current() -> None:
    """docs/accounting.md states the current number of theorems in the calculator."""
    page = Path(__file__).parents[3] / "docs" / "accounting.md"
    assert f"evaluates {len(CALCULATOR)} theorems" in page.read_text()
