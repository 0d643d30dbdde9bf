"""Destruction of what is left of retired models and datasets: after the tombstones know that they were retired, so that
no backup brings them back."""

from sqlalchemy.exc import SQLAlchemyError

from app import telemetry
from app.backup import tombstones
from app.catalogue import service as catalogue
from app.installations import Installation
from app.unlearning import retirement
from lethe.contract.problems import Problem


def destroy(installation: Installation) -> None:
    """Remember what was retired, destroy its weights and rows, and say so of what is gone. May be done by anybody,
    again and again; what a store refuses is tried again the next time.

    Raises `TombstonesDamaged`, `DatabasePutBack`, `OSError`.
    """
    with installation.database.reading() as session:
        pending = retirement.pending(session)
    if pending:
        tombstones.record(installation)
    for retired in pending:
        for rows_id in retired.rows_ids:
            installation.rows.delete(rows_id)
        if set(catalogue.destroy(installation.weights, retired.version_ids)) == set(retired.version_ids):
            with installation.database.writing() as session:
                retirement.confirm(session, retired)


def destroy_now(installation: Installation) -> None:
    """`destroy`, before somebody is answered; never raises: what cannot be done now is done by a worker."""
    try:
        destroy(installation)
    except (Problem, OSError, SQLAlchemyError) as error:
        telemetry.logger().error("retirement.put_off", error=type(error).__name__)
