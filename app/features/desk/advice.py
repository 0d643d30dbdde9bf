"""Advice on failed runs and webhook deliveries: what an error code means and what to do about it.

The advice agrees with docs/operations.md and docs/webhooks.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.features.desk.languages import gettext, marked


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Advice on an error code: what happened, and what an operator should do.

    `is_retried`: True if the gateway also retries the delivery automatically.
    """

    means: str
    todo: str
    is_retried: bool = False


_WORKER_GONE = Advice(
    means=marked("The worker was killed, or silent for longer than its lease."),
    todo=marked(
        "Nothing, if it happens once: another run does the work again. Otherwise read the end of the worker's log."
    ),
)
_DISK_OR_DATABASE = Advice(
    means=marked("Usually a full disk, or the database."),
    todo=marked("Look at the free space of the data folder, and whether the database answers."),
)
_NO_ACCESS = Advice(
    means=marked("A file or folder is not there, or may not be used: often that of the tombstones."),
    todo=marked("See that the folder of LETHE_TOMBSTONES exists, and that workers can write there."),
)
_WEIGHTS_LOST = Advice(
    means=marked("The live weights are lost or damaged."), todo=marked("Nothing: the model is learned again.")
)
_UNKNOWN = Advice(
    means=marked("A defect."), todo=marked("Report it, with the log line unlearning.run_failed and its places.")
)

_ADVICE: Mapping[str, Advice] = {
    "worker_died": _WORKER_GONE,
    "lease_expired": _WORKER_GONE,
    "run_process_died": Advice(
        means=marked("The process that computes was killed: nearly always for want of memory."),
        todo=marked("Give the worker more memory; the kernel's log says oom."),
    ),
    "restored": Advice(
        means=marked("It was under way when the installation was restored from a backup."),
        todo=marked("Nothing: what is owed runs again."),
    ),
    "dataset_damaged": Advice(
        means=marked("The rows that are stored are not those on record. No run touches the dataset any more."),
        todo=marked("Put the right file back and run lethe dataset recheck, or restore a backup with the tombstones."),
    ),
    "database_put_back": Advice(
        means=marked("The tombstones know requests that the database does not: an older state of it was put back."),
        todo=marked("Back it up as it is with lethe backup, and restore that with the tombstones."),
    ),
    "tombstones_damaged": Advice(
        means=marked("The tombstones were changed, have lost lines, or are another installation's. Nobody is erased."),
        todo=marked("Put back a copy of them that is whole."),
    ),
    "dataset_too_large": Advice(
        means=marked(
            "The rows that one step reads do not fit in the memory that a run may use. They are erased nevertheless; "
            "nothing is learned."
        ),
        todo=marked(
            "Set LETHE_ROWS_MEMORY_BYTES to more, on a machine that has it, or make the model with a smaller batch "
            "size."
        ),
    ),
    "second_moment_exceeded": Advice(
        means=marked(
            "The rows of a batch exceed the second moment that the model's mechanism states. Nothing was learned."
        ),
        todo=marked("Make the model with a larger second moment, or with none."),
    ),
    "rehearsal_too_large": Advice(
        means=marked(
            "People asked to be forgotten since the rehearsal was asked for: too few are left for one of that size."
        ),
        todo=marked("Ask for a rehearsal of fewer people, 10 at least."),
    ),
    "rehearsal_done": Advice(
        means=marked("The live version had been rehearsed to the end by then; a version has one report."),
        todo=marked("Read that report; rehearse again when another version is live."),
    ),
    "model_not_live": Advice(
        means=marked("Another version went live while the rehearsal was about to start."),
        todo=marked("Nothing: it is tried again, on the version that is live."),
    ),
    "FileNotFoundError": _NO_ACCESS,
    "PermissionError": _NO_ACCESS,
    "run_differs_from_plan": Advice(
        means=marked("What ran is not what was planned. Nothing was certified or published."),
        todo=marked("Compare the versions of gateway and worker; report it."),
    ),
    "run_kind_unsupported": Advice(
        means=marked("The worker that took the run cannot do runs of its kind. Nothing was read or written."),
        todo=marked("Run the same release in gateway and workers."),
    ),
    "audit_failed": Advice(
        means=marked("The canary test of the run refuted what it was to certify. Nothing was certified or published."),
        todo=marked("The page of the run says by what. It runs again; if that fails too, run nothing on that machine."),
    ),
    "adaptive_budget_spent": Advice(
        means=marked(
            "The dataset's budget has no room for another version. Rows are erased; requests wait for the model."
        ),
        todo=marked("Retire the model to complete them. A model for the future learns from a new dataset."),
    ),
    "weights_unreadable": _WEIGHTS_LOST,
    "weights_destroyed": _WEIGHTS_LOST,
    "KeyEncryptionKeyLost": Advice(
        means=marked("The key-encryption key is not there, or is another one: nothing sealed can be opened."),
        todo=marked("Put keys/kek back from a backup."),
    ),
    "OSError": _DISK_OR_DATABASE,
    "OperationalError": _DISK_OR_DATABASE,
    "FloatingPointError": Advice(
        means=marked("A number was not finite. Nothing was published, nothing is certified."),
        todo=marked("Change the settings of the model: a larger l2 or noise_scale."),
    ),
}


_RETRIED = marked("It is tried again by itself, ten times in about three days; after that, send it again.")
_DELIVERY_ADVICE: Mapping[str, Advice] = {
    "timeout": Advice(
        means=marked("The receiver did not answer in time."),
        todo=marked(
            "Have it answer 2xx first and do the work afterwards, or allow more in LETHE_WEBHOOK_TIMEOUT_SECONDS."
        ),
    ),
    "not_connected": Advice(
        means=marked("No connection could be made to the receiver's address."),
        todo=marked("See that the receiver runs and that no firewall stands between."),
        is_retried=True,
    ),
    "not_resolved": Advice(
        means=marked("The receiver's host name has no address."),
        todo=marked("Look for a mistake in the callback_url, or in the name servers of the gateway's host."),
    ),
    "refused_address": Advice(
        means=marked("The receiver's address is not public, and was not called."),
        todo=marked("Name its network in LETHE_WEBHOOK_ALLOWED_NETWORKS if that is right, and send it again."),
    ),
    "tls_failed": Advice(
        means=marked("The receiver's certificate is not trusted, has expired, or is for another name."),
        todo=marked("Renew the certificate; name a private authority in SSL_CERT_FILE."),
    ),
    "connection_lost": Advice(
        means=marked("The connection broke before the receiver had answered."),
        todo=marked("Read the log of the receiver or of the proxy before it."),
        is_retried=True,
    ),
    "answer_malformed": Advice(
        means=marked("The receiver's answer is not HTTP."),
        todo=marked("See that the port of the callback_url is the right one."),
    ),
    "answer_too_large": Advice(
        means=marked("The head of the receiver's answer is too long."),
        todo=marked("Have it answer with a status and little else."),
    ),
    "redirected": Advice(
        means=marked("The receiver answered that it is elsewhere. Redirects are not followed."),
        todo=marked("Make requests with the address that it leads to as callback_url."),
    ),
    "url_invalid": Advice(
        means=marked("The callback_url is no address that may be called."),
        todo=marked("Nothing more is tried. Make requests with an https address, without user name and password."),
    ),
    "internal_error": Advice(
        means=marked("Sending it failed here."),
        todo=marked("Read the log line webhooks.sending_failed."),
        is_retried=True,
    ),
    "http_401": Advice(
        means=marked("The receiver wants a login that webhooks do not have (401)."),
        todo=marked("Have it verify the signature instead: docs/webhooks.md says how."),
    ),
    "http_403": Advice(
        means=marked("The receiver, or something before it, forbids the call (403)."),
        todo=marked("Allow the gateway's address there; verify the signature rather than the sender."),
    ),
    "http_404": Advice(
        means=marked("The receiver has no such path (404)."),
        todo=marked("Look for a mistake in the callback_url, or deploy the receiver."),
    ),
    "http_410": Advice(
        means=marked("The receiver wants nothing more (410). This tenant sends nothing to that address any more."),
        todo=marked("Nothing, if that is meant. A request that names the address again is sent there again."),
    ),
    "http_429": Advice(means=marked("The receiver is called too often (429)."), todo="", is_retried=True),
}


def advice(error_code: str) -> Advice:
    """Return the advice on the error code of a run."""
    return _translated(_ADVICE.get(error_code, _UNKNOWN))


def delivery_advice(error_code: str) -> Advice:
    """Return the advice on the error code of a delivery's last attempt."""
    if error_code in _DELIVERY_ADVICE:
        return _translated(_DELIVERY_ADVICE[error_code])
    status = error_code.removeprefix("http_")
    if status.startswith("5") and status != error_code:
        means, todo = gettext("The receiver failed ({status})."), gettext("Read its log.")
    elif status.isdecimal():
        means, todo = gettext("The receiver refused it ({status})."), gettext("Read its log: it has to answer 2xx.")
    else:
        means, todo = gettext("It did not arrive."), ""
    return Advice(means=means.format(status=status), todo=f"{todo} {gettext(_RETRIED)}".strip(), is_retried=True)


def _translated(advice: Advice) -> Advice:
    """Translate advice into the reader's language; a note on automatic retries follows the action."""
    todo = [advice.todo] * bool(advice.todo) + [_RETRIED] * advice.is_retried
    return replace(advice, means=gettext(advice.means), todo=" ".join(map(gettext, todo)))
