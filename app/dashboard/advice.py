"""Advice on a run or a delivery that failed: what that means, and what to do about it, as docs/operations.md and
docs/webhooks.md say it."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """About one `error_code`. `means`: what happened; `todo`: what an operator does."""

    means: str
    todo: str


_WORKER_GONE = Advice(
    means="The worker was killed, or silent for longer than its lease.",
    todo="Nothing, if it happens once: another run does the work again. Otherwise read the end of the worker's log.",
)
_DISK_OR_DATABASE = Advice(
    means="Usually a full disk, or the database.",
    todo="Look at the free space of the data folder, and whether the database answers.",
)
_NO_ACCESS = Advice(
    means="A file or folder is not there, or may not be used: often that of the tombstones.",
    todo="See that the folder of LETHE_TOMBSTONES exists, and that workers can write there.",
)
_WEIGHTS_LOST = Advice(means="The live weights are lost or damaged.", todo="Nothing: the model is learned again.")
_UNKNOWN = Advice(means="A defect.", todo="Report it, with the log line unlearning.run_failed and its places.")

_ADVICE: Mapping[str, Advice] = {
    "worker_died": _WORKER_GONE,
    "lease_expired": _WORKER_GONE,
    "run_process_died": Advice(
        means="The process that computes was killed: nearly always for want of memory.",
        todo="Give the worker more memory; the kernel's log says oom.",
    ),
    "restored": Advice(
        means="It was under way when the installation was restored from a backup.",
        todo="Nothing: what is owed runs again.",
    ),
    "dataset_damaged": Advice(
        means="The rows that are stored are not those on record. No run touches the dataset any more.",
        todo="Put the right file back and run lethe dataset recheck, or restore a backup with the tombstones.",
    ),
    "database_put_back": Advice(
        means="The tombstones know requests that the database does not: an older state of it was put back.",
        todo="Back it up as it is with lethe backup, and restore that with the tombstones.",
    ),
    "tombstones_damaged": Advice(
        means="The tombstones were changed, have lost lines, or are another installation's. Nobody is erased.",
        todo="Put back a copy of them that is whole.",
    ),
    "dataset_too_large": Advice(
        means="The rows that one step reads do not fit in the memory that a run may use. They are erased nevertheless; "
        "nothing is learned.",
        todo="Set LETHE_ROWS_MEMORY_BYTES to more, on a machine that has it, or make the model with a smaller batch "
        "size.",
    ),
    "second_moment_exceeded": Advice(
        means="The rows of a batch exceed the second moment that the model's mechanism states. Nothing was learned.",
        todo="Make the model with a larger second moment, or with none.",
    ),
    "rehearsal_too_large": Advice(
        means="People asked to be forgotten since the rehearsal was asked for: too few are left for one of that size.",
        todo="Ask for a rehearsal of fewer people, 10 at least.",
    ),
    "rehearsal_done": Advice(
        means="The live version had been rehearsed to the end by then; a version has one report.",
        todo="Read that report; rehearse again when another version is live.",
    ),
    "model_not_live": Advice(
        means="Another version went live while the rehearsal was about to start.",
        todo="Nothing: it is tried again, on the version that is live.",
    ),
    "FileNotFoundError": _NO_ACCESS,
    "PermissionError": _NO_ACCESS,
    "run_differs_from_plan": Advice(
        means="What ran is not what was planned. Nothing was certified or published.",
        todo="Compare the versions of gateway and worker; report it.",
    ),
    "audit_failed": Advice(
        means="The canary test of the run refuted what it was to certify. Nothing was certified or published.",
        todo="The page of the run says by what. It runs again; if that fails too, run nothing on that machine.",
    ),
    "adaptive_budget_spent": Advice(
        means="The dataset's budget has no room for another version. Rows are erased; requests wait for the model.",
        todo="Retire the model to complete them. A model for the future learns from a new dataset.",
    ),
    "weights_unreadable": _WEIGHTS_LOST,
    "weights_destroyed": _WEIGHTS_LOST,
    "KeyEncryptionKeyLost": Advice(
        means="The key-encryption key is not there, or is another one: nothing sealed can be opened.",
        todo="Put keys/kek back from a backup.",
    ),
    "OSError": _DISK_OR_DATABASE,
    "OperationalError": _DISK_OR_DATABASE,
    "FloatingPointError": Advice(
        means="A number was not finite. Nothing was published, nothing is certified.",
        todo="Change the settings of the model: a larger l2 or noise_scale.",
    ),
}


def advice(error_code: str) -> Advice:
    return _ADVICE.get(error_code, _UNKNOWN)


_TRIED_AGAIN = "It is tried again by itself, ten times in about three days; after that, send it again."
_DELIVERY_ADVICE: Mapping[str, Advice] = {
    "timeout": Advice(
        means="The receiver did not answer in time.",
        todo="Have it answer 2xx first and do the work afterwards, or allow more in LETHE_WEBHOOK_TIMEOUT_SECONDS.",
    ),
    "not_connected": Advice(
        means="No connection could be made to the receiver's address.",
        todo="See that the receiver runs and that no firewall stands between. " + _TRIED_AGAIN,
    ),
    "not_resolved": Advice(
        means="The receiver's host name has no address.",
        todo="Look for a mistake in the callback_url, or in the name servers of the gateway's host.",
    ),
    "refused_address": Advice(
        means="The receiver's address is not public, and was not called.",
        todo="Name its network in LETHE_WEBHOOK_ALLOWED_NETWORKS if that is right, and send it again.",
    ),
    "tls_failed": Advice(
        means="The receiver's certificate is not trusted, has expired, or is for another name.",
        todo="Renew the certificate; name a private authority in SSL_CERT_FILE.",
    ),
    "connection_lost": Advice(
        means="The connection broke before the receiver had answered.",
        todo="Read the log of the receiver or of the proxy before it. " + _TRIED_AGAIN,
    ),
    "answer_malformed": Advice(
        means="The receiver's answer is not HTTP.", todo="See that the port of the callback_url is the right one."
    ),
    "answer_too_large": Advice(
        means="The head of the receiver's answer is too long.", todo="Have it answer with a status and little else."
    ),
    "redirected": Advice(
        means="The receiver answered that it is elsewhere. Redirects are not followed.",
        todo="Make requests with the address that it leads to as callback_url.",
    ),
    "url_invalid": Advice(
        means="The callback_url is no address that may be called.",
        todo="Nothing more is tried. Make requests with an https address, without user name and password.",
    ),
    "internal_error": Advice(
        means="Sending it failed here.", todo="Read the log line webhooks.sending_failed. " + _TRIED_AGAIN
    ),
    "http_401": Advice(
        means="The receiver wants a login that webhooks do not have (401).",
        todo="Have it verify the signature instead: docs/webhooks.md says how.",
    ),
    "http_403": Advice(
        means="The receiver, or something before it, forbids the call (403).",
        todo="Allow the gateway's address there; verify the signature rather than the sender.",
    ),
    "http_404": Advice(
        means="The receiver has no such path (404).",
        todo="Look for a mistake in the callback_url, or deploy the receiver.",
    ),
    "http_410": Advice(
        means="The receiver wants nothing more (410). This tenant sends nothing to that address any more.",
        todo="Nothing, if that is meant. A request that names the address again is sent there again.",
    ),
    "http_429": Advice(means="The receiver is called too often (429).", todo=_TRIED_AGAIN),
}


def delivery_advice(error_code: str) -> Advice:
    """Advice on the code of a delivery's last attempt."""
    found = _DELIVERY_ADVICE.get(error_code)
    if found is not None:
        return found
    status = error_code.removeprefix("http_")
    if status.startswith("5") and status != error_code:
        return Advice(means=f"The receiver failed ({status}).", todo="Read its log. " + _TRIED_AGAIN)
    if status.isdecimal():
        return Advice(
            means=f"The receiver refused it ({status}).", todo="Read its log: it has to answer 2xx. " + _TRIED_AGAIN
        )
    return Advice(means="It did not arrive.", todo=_TRIED_AGAIN)
