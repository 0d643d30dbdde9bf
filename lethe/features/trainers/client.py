"""`client.training_tables` and `client.trainers`, for models retrained from scratch without a person's data."""

from lethe.client.methods import H, Keyed, Resource, call, pages, upload
from lethe.contract.fields import optional
from lethe.features.trainers import contract


class _NewTable(contract.TableFileIn, Keyed):
    name: str | None = optional("Name of the table. Default: the file's name.")


class _NewTrainer(contract.TrainerIn, Keyed):
    pass


class TrainingTables(Resource[H]):
    """Tables of original columns on which trainers train models."""

    upload = upload(contract.UPLOAD_TABLE, _NewTable)
    list = pages(contract.LIST_TABLES)
    get = call(contract.GET_TABLE)
    retire = call(contract.RETIRE_TABLE)


class Trainers(Resource[H]):
    """Trainers, which a worker runs in isolation on a table's current rows."""

    create = call(contract.CREATE, _NewTrainer)
    list = pages(contract.LIST)
    get = call(contract.GET)
    retire = call(contract.RETIRE)
    trainings = pages(contract.TRAININGS)
    plan = call(contract.PLAN)
    release = call(contract.RELEASE)
    artefact = call(contract.ARTEFACT)
