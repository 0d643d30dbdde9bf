"""Clients for customers to import: typed calls of the core and of every feature. When a feature is removed, its lines
here must be removed too."""

from lethe import client as core
from lethe.client.http import AsyncHttp, Http
from lethe.client.methods import H
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


class Accounting(CalculatorAccounting[H], InsightAccounting[H], LedgerAccounting[H]):
    __doc__ = LedgerAccounting.__doc__


class Datasets(DatasetAdditions[H], DatasetEncodings[H], CoreDatasets[H]):
    __doc__ = CoreDatasets.__doc__


class DeletionRequests(
    RequestCases[H],
    RequestIdentities[H],
    RequestInsights[H],
    RequestLists[H],
    RequestSystems[H],
    CoreDeletionRequests[H],
):
    __doc__ = CoreDeletionRequests.__doc__


class Models(
    ModelCanaryTests[H], ModelGates[H], ModelCopies[H], ModelPredictions[H], ModelRehearsals[H], CoreModels[H]
):
    __doc__ = CoreModels.__doc__


class Runs(RunQueue[H], CoreRuns[H]):
    __doc__ = CoreRuns.__doc__


class Resources(core.Resources[H]):
    """The client's resources, including those that features add."""

    accounting: Accounting[H]
    agents: Agents[H]
    attested_trainers: AttestedTrainers[H]
    audit_log: AuditLog[H]
    datasets: Datasets[H]
    deletion_requests: DeletionRequests[H]
    drop: Drop[H]
    dp_models: DpModels[H]
    identities: Identities[H]
    identity_issuers: IdentityIssuers[H]
    leaving_reasons: LeavingReasons[H]
    ledger: Ledger[H]
    lineage: Lineage[H]
    models: Models[H]
    networks: Networks[H]
    overview: Overview[H]
    runs: Runs[H]
    suppressions: Suppressions[H]
    systems: Systems[H]
    system_tasks: SystemTasks[H]
    trainers: Trainers[H]
    training_tables: TrainingTables[H]
    users: Users[H]
    webhooks: Webhooks[H]


class Client(core.Client, Resources[Http]):
    __doc__ = core.Client.__doc__


class AsyncClient(core.AsyncClient, Resources[AsyncHttp]):
    __doc__ = core.AsyncClient.__doc__
