"""Calls that this gateway cannot serve, or not now."""

from lethe.contract.problems.families import Refused, Unavailable


class MethodNotAllowed(Refused):
    code = "method_not_allowed"
    title = "The path knows other methods"
    status = 405


class InstallationMismatch(Unavailable):
    code = "installation_mismatch"
    title = "Keys, stores and database are not of one installation"


class StorageFull(Unavailable):
    code = "storage_full"
    title = "The disk is full"


class DatabaseDamaged(Unavailable):
    code = "database_damaged"
    title = "The database is damaged"


class Busy(Unavailable):
    code = "busy"
    title = "Too many calls at once"


class IdentityProviderUnavailable(Unavailable):
    code = "identity_provider_unavailable"
    title = "The identity provider does not answer"
