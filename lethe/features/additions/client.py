"""`client.datasets` calls that add rows to a dataset."""

from lethe.client.methods import H, Keyed, Resource, call, pages, upload_one
from lethe.contract.datasets import RowsIn
from lethe.features.additions import contract


class _AddedRows(RowsIn, Keyed):
    pass


class DatasetAdditions(Resource[H]):
    """Methods of `client.datasets` that add rows to a dataset."""

    add = upload_one(contract.ADD, _AddedRows)
    addition = call(contract.ADDITION)
    additions = pages(contract.ADDITIONS)
