"""Calls that evaluate the calculator's theorems."""

from lethe.client.methods import H, Resource, call, pages
from lethe.features.calculator import contract


class CalculatorAccounting(Resource[H]):
    """Methods of `client.accounting` that list and evaluate theorems."""

    evaluate = call(contract.EVALUATE)
    bounds = pages(contract.BOUNDS)
