"""Clients for customers to import: typed calls of the core and of every feature. When a feature is removed, its lines
here must be removed too."""

from lethe import client as core
from lethe.client import http, methods
from lethe.client.resources import (
    Datasets as CoreDatasets,
    DeletionRequests as CoreDeletionRequests,
    Models as CoreModels,
    Runs as CoreRuns,
)
from lethe.features.additions.client import DatasetAdditions
from lethe.features.attested.client import AttestedTrainers
from lethe.features.calculator.client import CalculatorAccounting
from lethe.features.canary_tests.client import ModelCanaryTests
from lethe.features.custody.client import AuditLog, Ledger, LedgerAccounting
from lethe.features.desk.client import RequestCases
from lethe.features.drop.client import Drop
from lethe.features.identities.client import Identities, RequestIdentities
from lethe.features.insight.client import InsightAccounting, RequestInsights
from lethe.features.leaving.client import LeavingReasons
from lethe.features.ledgers.client import DpModels
from lethe.features.lineage.client import Lineage, ModelCopies
from lethe.features.lists.client import RequestLists
from lethe.features.networks.client import DatasetEncodings, Networks
from lethe.features.overview.client import Overview
from lethe.features.people.client import Users
from lethe.features.predictions.client import ModelPredictions
from lethe.features.protocols.client import Agents, IdentityIssuers
from lethe.features.quality.client import ModelGates
from lethe.features.queue.client import RunQueue
from lethe.features.rehearsals.client import ModelRehearsals
from lethe.features.stores.client import SystemTasks
from lethe.features.suppressions.client import Suppressions
from lethe.features.systems.client import RequestSystems, Systems
from lethe.features.trainers.client import Trainers, TrainingTables
from lethe.features.webhooks.client import Webhooks


class Accounting(CalculatorAccounting[methods.H], InsightAccounting[methods.H], LedgerAccounting[methods.H]):
    __doc__ = LedgerAccounting.__doc__


class Datasets(DatasetAdditions[methods.H], DatasetEncodings[methods.H], CoreDatasets[methods.H]):
    __doc__ = CoreDatasets.__doc__


class DeletionRequests(
    RequestCases[methods.H],
    RequestIdentities[methods.H],
    RequestInsights[methods.H],
    RequestLists[methods.H],
    RequestSystems[methods.H],
    CoreDeletionRequests[methods.H],
):
    __doc__ = CoreDeletionRequests.__doc__


class Models(
    ModelCanaryTests[methods.H],
    ModelGates[methods.H],
    ModelCopies[methods.H],
    ModelPredictions[methods.H],
    ModelRehearsals[methods.H],
    CoreModels[methods.H],
):
    __doc__ = CoreModels.__doc__


class Runs(RunQueue[methods.H], CoreRuns[methods.H]):
    __doc__ = CoreRuns.__doc__


class Resources(core.Resources[methods.H]):
    """The client's resources, including those that features add."""

    accounting: Accounting[methods.H]
    agents: Agents[methods.H]
    attested_trainers: AttestedTrainers[methods.H]
    audit_log: AuditLog[methods.H]
    datasets: Datasets[methods.H]
    deletion_requests: DeletionRequests[methods.H]
    drop: Drop[methods.H]
    dp_models: DpModels[methods.H]
    identities: Identities[methods.H]
    identity_issuers: IdentityIssuers[methods.H]
    leaving_reasons: LeavingReasons[methods.H]
    ledger: Ledger[methods.H]
    lineage: Lineage[methods.H]
    models: Models[methods.H]
    networks: Networks[methods.H]
    overview: Overview[methods.H]
    runs: Runs[methods.H]
    suppressions: Suppressions[methods.H]
    systems: Systems[methods.H]
    system_tasks: SystemTasks[methods.H]
    trainers: Trainers[methods.H]
    training_tables: TrainingTables[methods.H]
    users: Users[methods.H]
    webhooks: Webhooks[methods.H]


class Client(core.Client, Resources[http.Http]):
    __doc__ = core.Client.__doc__


class AsyncClient(core.AsyncClient, Resources[http.AsyncHttp]):
    __doc__ = core.AsyncClient.__doc__
