"""Receivers: rules for a callback's URL and for the addresses behind it.

The caller who submits a request chooses the URL, which might point to a server that only this host can reach
(server-side request forgery). Only public addresses and networks allowed by the operator are called. No error quotes a
URL, because it may contain one of the owner's secrets.
"""

import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import httpx

from lethe.contract.problems import FieldError, InputInvalid

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

Resolve = Callable[[str], Sequence[str]]
"""Function that returns all addresses of a name, or raises `OSError` if it has none."""

_MAX_URL_LENGTH = 2048
_MAX_HOST_LENGTH = 253
_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"({_LABEL}\.)*(?!([0-9]+|0x[0-9a-f]*)$){_LABEL}")
"""DNS name. Names ending in a number are excluded, because some resolvers read them as IPv4: 2130706433, 127.1,
0x7f.1."""

_WEB_PORTS = (80, 443)
_FIRST_FREE_PORT = 1024

_PUBLIC_IPV6 = IPv6Network("2000::/3")
"""All addresses assigned by IANA so far; excludes NAT64, IPv4-mapped, unique-local, link-local and multicast
addresses."""

_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        # IANA IPv4 Special-Purpose Address Registry
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        # Azure's platform service for virtual machines
        "168.63.129.16/32",
        # IANA IPv6 Special-Purpose Address Registry, within 2000::/3
        # Includes Teredo, 2001::/32.
        "2001::/23",
        "2001:db8::/32",
        # 6to4 embeds IPv4 addresses.
        "2002::/16",
        "2620:4f:8000::/48",
        "3fff::/20",
    )
)


class ReceiverRefused(Exception):
    """Receiver that must not be called. `code` is stable and public; `expected` describes an acceptable receiver."""

    def __init__(self, code: str, expected: str) -> None:
        super().__init__(code)
        self.code = code
        self.expected = expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """Parsed URL of a receiver. `host` is a DNS name, or the text of `address`."""

    encrypted: bool
    host: str
    port: int
    address: Address | None
    target: bytes
    """Path and query, as sent."""
    authority: bytes
    """Value of the header `Host`."""


def check_url(url: str, allowed: Sequence[Network], *, path: str = "callback_url") -> None:
    """Check a receiver's URL without a DNS lookup. Raises `InputInvalid`, naming `path`."""
    try:
        parse(url, allowed)
    except ReceiverRefused as refused:
        raise InputInvalid(
            "The URL is not one that can be called back.", [FieldError(path, refused.expected)]
        ) from None


def parse(url: str, allowed: Sequence[Network]) -> Receiver:
    """Parse a URL. Raises `ReceiverRefused` (`url_invalid`, or `refused_address` for an address that is neither public
    nor allowed)."""
    if len(url) > _MAX_URL_LENGTH:
        raise _invalid(f"Expected at most {_MAX_URL_LENGTH} characters")
    try:
        parts = httpx.URL(url)
        host = parts.raw_host.decode("ascii")
        encrypted = {"https": True, "http": False}.get(parts.scheme)
    except (httpx.InvalidURL, ValueError):
        raise _invalid("Expected a URL") from None
    if encrypted is None:
        raise _invalid("Expected a URL that begins with https://")
    if parts.userinfo:
        raise _invalid("Expected a URL without a user name and password")
    port = parts.port if parts.port is not None else 443 if encrypted else 80
    # Most other ports below 1024 belong to protocols such as SMTP, whose servers may obey lines of a request.
    if port not in _WEB_PORTS and not _FIRST_FREE_PORT <= port <= 65535:
        raise _invalid("Expected port 80, 443, or one from 1024 to 65535")
    address = _literal(host)
    if address is not None:
        _check_address(address, allowed, encrypted=encrypted)
    elif len(host) > _MAX_HOST_LENGTH or not _HOST.fullmatch(host):
        raise _invalid("Expected the name of a host, or its address in the usual form")
    elif not encrypted and not allowed:
        raise _invalid("Expected https; http is only for addresses that the operator of this server allows")
    return Receiver(
        encrypted=encrypted, host=host, port=port, address=address, target=parts.raw_path, authority=parts.netloc
    )


def host_of(url: str) -> str:
    """Return a URL's host, which contains no secrets; empty if `url` is not a URL."""
    try:
        return httpx.URL(url).raw_host.decode("ascii")[:_MAX_HOST_LENGTH]
    except (httpx.InvalidURL, ValueError):
        return ""


def addresses(receiver: Receiver, allowed: Sequence[Network], *, resolve: Resolve, seconds: float) -> list[Address]:
    """Resolve the receiver's host with one DNS query, and return its addresses, all of which may be called. Raises
    `ReceiverRefused` (`not_resolved`, `refused_address`), and `TimeoutError` after `seconds`."""
    if receiver.address is not None:
        return [receiver.address]
    try:
        answers = _within(seconds, lambda: resolve(receiver.host))
    except TimeoutError:
        raise
    except OSError:
        raise ReceiverRefused("not_resolved", "Expected a name that is in DNS") from None
    resolved = []
    for answer in dict.fromkeys(answers):
        address = _literal(answer)
        # The address may have a zone, which public addresses do not have.
        if address is None:
            raise _refused()
        _check_address(address, allowed, encrypted=receiver.encrypted)
        resolved.append(address)
    if not resolved:
        raise ReceiverRefused("not_resolved", "Expected a name that is in DNS")
    return resolved


def look_up(host: str) -> list[str]:
    """Return a host's addresses from this machine's resolver."""
    return [str(answer[4][0]) for answer in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


def is_public(address: Address) -> bool:
    """Return True if an address is assigned on the public internet and has no special purpose."""
    if address.version == 6 and address not in _PUBLIC_IPV6:
        return False
    return not any(address in network for network in _NOT_PUBLIC)


def _check_address(address: Address, allowed: Sequence[Network], *, encrypted: bool) -> None:
    if not any(address in network for network in allowed) and not (encrypted and is_public(address)):
        raise _refused()


def _literal(host: str) -> Address | None:
    try:
        return None if "%" in host else ipaddress.ip_address(host)
    except ValueError:
        return None


def _within(seconds: float, look: Callable[[], Sequence[str]]) -> Sequence[str]:
    """Run `look` in a separate thread, because resolvers have no time limit, and return its result."""
    future: Future[Sequence[str]] = Future()

    def run() -> None:
        try:
            future.set_result(look())
        # Raised again by future.result().
        except Exception as error:  # noqa: BLE001
            future.set_exception(error)

    threading.Thread(target=run, name="webhooks-resolve", daemon=True).start()
    return future.result(timeout=seconds)


def _invalid(expected: str) -> ReceiverRefused:
    return ReceiverRefused("url_invalid", expected)


def _refused() -> ReceiverRefused:
    expected = "Expected https to a public address, or an address that the operator of this server allows"
    return ReceiverRefused("refused_address", expected)
