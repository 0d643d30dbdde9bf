import ipaddress
import threading
import time
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import example, given, strategies as st

from app.features.webhooks import receiver
from app.features.webhooks.receiver import ReceiverRefused
from lethe.contract.problems import FieldError, InputInvalid
from tests.tables import each

LOOPBACK = [ip_network("127.0.0.0/8"), ip_network("::1/128")]

NOT_PUBLIC = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
]
PUBLIC = ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "192.0.1.1", "2606:4700::1111", "2a00:1450::1", "2400::1"]


def brackets(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def reason(url: str, *allowed: str) -> str:
    """Return the reason why a submitted URL is refused."""
    with pytest.raises(InputInvalid) as refused:
        receiver.check_url(url, [ip_network(network) for network in allowed])
    (error,) = refused.value.errors
    assert error.path == "callback_url"
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__
    return error.message


@each("address", NOT_PUBLIC)
def test_private_addresses_are_refused(address: str) -> None:
    """Private, local, reserved and disguised addresses are refused, both as literals in a URL and as the resolved
    address of a name."""
    assert not receiver.is_public(ipaddress.ip_address(address))
    assert "public" in reason(f"https://{brackets(address)}/hook")
    with pytest.raises(ReceiverRefused, match=r"^refused_address$"):
        found("https://hooks.test", address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_called(address: str) -> None:
    """Public internet addresses are accepted, both as literals in a URL and as the resolved address of a name."""
    assert receiver.is_public(ipaddress.ip_address(address))
    receiver.check_url(f"https://{brackets(address)}/hook", [])
    assert found("https://hooks.test", address) == [ipaddress.ip_address(address)]


@given(address=st.ip_addresses())
@example(address=IPv4Address("192.88.99.1"))
@example(address=IPv6Address("2001:1::1"))
def test_addresses_private_to_python_are_not_public(address: IPv4Address | IPv6Address) -> None:
    """An address that Python classifies as private, reserved, local or multicast is not accepted as public."""
    inner = address.is_private or address.is_reserved or address.is_link_local or address.is_loopback
    if inner or address.is_multicast or address.is_unspecified or not address.is_global:
        assert not receiver.is_public(address)


@given(number=st.integers(0, 2**32 - 1))
def test_an_ipv4_address_in_ipv6_is_never_public(number: int) -> None:
    """IPv6 addresses that map, translate or tunnel an IPv4 address are refused, whatever that address is."""
    for prefix, shift in (("::ffff:0:0", 0), ("::", 0), ("64:ff9b::", 0), ("2002::", 80), ("2001::", 0)):
        assert not receiver.is_public(IPv6Address(int(IPv6Address(prefix)) | number << shift))


@each(
    "host",
    [
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "127.1",
        "127.0.1",
        "0",
        "0x",
        "017700000001",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:FFFF:7F00:0001]",
        "127\u30020\u30020\u30021",
        "\uff11\uff12\uff17.0.0.1",
        "127.0.0.1.",
        "[::1%25lo]",
        "[2606:4700::1111%25eth0]",
        "hooks.example.1",
        "127.0.0.1%00.example.com",
    ],
)
def test_disguised_addresses_are_refused(host: str) -> None:
    """A host is refused if it is an IP address in disguise: as a single number, in octal or hexadecimal, shortened,
    mapped, or in non-ASCII digits."""
    reason(f"https://{host}/hook")
    reason(f"http://{host}/hook", "10.0.0.0/8")


@each(
    ("url", "expected"),
    [
        ("", "https"),
        ("hooks.example.com", "https"),
        ("//hooks.example.com/", "https"),
        ("ftp://hooks.example.com/", "https"),
        ("file:///etc/passwd", "https"),
        ("gopher://hooks.example.com/", "https"),
        ("http://hooks.example.com/", "Expected https;"),
        ("http://8.8.8.8/", "https to a public address"),
        ("https://", "host"),
        ("https:///hook", "host"),
        ("https:hooks.example.com", "host"),
        ("https://jane@hooks.example.com/", "user name"),
        ("https://jane:secret@hooks.example.com/", "user name"),
        ("https://hooks.example.com\\@127.0.0.1/", "user name"),
        ("https://hooks.example.com:0/", "port"),
        ("https://hooks.example.com:22/", "port"),
        ("https://hooks.example.com:25/", "port"),
        ("https://hooks.example.com:65536/", "port"),
        ("https://hooks.example.com:-1/", "port"),
        ("https://hooks.example.com:port/", "URL"),
        ("https://hooks.example.com:" + "9" * 1000 + "/", "port"),
        ("https://hooks example.com/", "host"),
        ("https://hooks\\example.com/", "host"),
        ("https://-hooks.example.com/", "host"),
        ("https://hooks..example.com/", "host"),
        ("https://" + "a" * 64 + ".example.com/", "host"),
        ("https://" + "a." * 127 + "com/", "host"),
        ("https://hooks.example.com/\r\nHost: inner", "URL"),
        ("https://hooks.example.com/\ud800", "URL"),
        ("https://[::1/", "URL"),
        ("https://[zz]/", "URL"),
        ("https://hooks.example.com/" + "a" * 2048, "2048"),
    ],
)
def test_unusable_urls_are_refused_on_submission(url: str, expected: str) -> None:
    """A URL that cannot be called is refused on submission, and the error states which URLs are accepted."""
    assert expected in reason(url)


@pytest.mark.parametrize(
    ("url", "host", "port", "target", "authority"),
    [
        ("https://hooks.example.com", "hooks.example.com", 443, "/", "hooks.example.com"),
        ("https://Hooks.Example.COM:443/a?b=c#d", "hooks.example.com", 443, "/a?b=c", "hooks.example.com"),
        ("https://hooks.example.com:8443/ä b", "hooks.example.com", 8443, "/%C3%A4%20b", "hooks.example.com:8443"),
        ("https://bücher.example/", "xn--bcher-kva.example", 443, "/", "xn--bcher-kva.example"),
        ("https://hooks_1.example.com:80/", "hooks_1.example.com", 80, "/", "hooks_1.example.com:80"),
        ("https://[2606:4700::1111]:8443/", "2606:4700::1111", 8443, "/", "[2606:4700::1111]:8443"),
        ("https://1e100.net/", "1e100.net", 443, "/", "1e100.net"),
        ("https://intranet/", "intranet", 443, "/", "intranet"),
    ],
)
def test_urls_are_normalised(url: str, host: str, port: int, target: str, authority: str) -> None:
    """The request is sent to the host, port, path and query of the normalised URL."""
    found = receiver.parse(url, [])
    assert (found.host, found.port, found.target.decode(), found.authority.decode()) == (host, port, target, authority)
    assert found.encrypted


def test_the_operator_can_allow_networks() -> None:
    """Addresses within a permitted network can be called, even without TLS. Adjacent addresses cannot."""
    allowed = [ip_network("10.1.0.0/16"), ip_network("fd00::/64")]
    for host in ("10.1.0.1", "[fd00::1]"):
        receiver.check_url(f"http://{host}:8080/hook", allowed)
        receiver.check_url(f"https://{host}/hook", allowed)
    for host in ("10.2.0.1", "[fd00:1::1]", "127.0.0.1", "[::ffff:10.1.0.1]"):
        assert "operator" in reason(f"https://{host}/hook", "10.1.0.0/16", "fd00::/64")
    receiver.check_url("http://hooks.example.com/", allowed)
    assert found("http://hooks.example.com/", "10.1.0.1", "fd00::2", allow=["10.1.0.0/16", "fd00::/64"])
    for beside in ("10.2.0.1", "8.8.8.8"):
        with pytest.raises(ReceiverRefused, match=r"^refused_address$"):
            found("http://hooks.example.com/", "10.1.0.1", beside, allow=["10.1.0.0/16"])


def found(url: str, *answers: str, allow: Sequence[str] = ()) -> list[IPv4Address | IPv6Address]:
    """Return the addresses to call for a receiver whose name resolves to `answers`."""
    allowed = [ip_network(network) for network in allow]
    asked: list[str] = []

    def resolve(host: str) -> Sequence[str]:
        asked.append(host)
        return answers

    try:
        return receiver.addresses(receiver.parse(url, allowed), allowed, resolve=resolve, seconds=5)
    finally:
        assert len(asked) == 1


def test_a_name_with_one_private_address_is_not_called() -> None:
    """A host name is not called at all if any of its addresses is private, in whatever order the addresses are
    returned."""
    assert [str(address) for address in found("https://hooks.test", "8.8.8.8", "1.1.1.1", "8.8.8.8")] == [
        "8.8.8.8",
        "1.1.1.1",
    ]
    for answers in (("8.8.8.8", "10.0.0.1"), ("10.0.0.1", "8.8.8.8"), ("8.8.8.8", "fe80::1%eth0"), ("8.8.8.8", "?")):
        with pytest.raises(ReceiverRefused, match=r"^refused_address$"):
            found("https://hooks.test", *answers)


def test_a_name_without_addresses_counts_as_unresolved() -> None:
    """The receiver's owner sees the same error whether the resolver returns no address or fails."""
    with pytest.raises(ReceiverRefused, match=r"^not_resolved$"):
        found("https://hooks.test")

    def fail(host: str) -> Sequence[str]:
        raise OSError(f"{host} is unknown")

    with pytest.raises(ReceiverRefused, match=r"^not_resolved$") as refused:
        receiver.addresses(receiver.parse("https://hooks.test", []), [], resolve=fail, seconds=5)
    assert "hooks.test" not in str(refused.value) + refused.value.expected


def test_an_ip_literal_is_not_resolved() -> None:
    """If the URL's host is an IP address, that address is used without a DNS lookup."""

    def fail(_host: str) -> Sequence[str]:
        raise AssertionError

    parsed = receiver.parse("https://[2606:4700:0:0::1111]/", [])
    assert receiver.addresses(parsed, [], resolve=fail, seconds=5) == [IPv6Address("2606:4700::1111")]


def test_a_slow_resolver_times_out() -> None:
    """If a name server does not answer, resolution ends at the time limit."""
    answered = threading.Event()

    def slow(_host: str) -> Sequence[str]:
        answered.wait(300)
        return ["8.8.8.8"]

    begun = time.monotonic()
    try:
        with pytest.raises(TimeoutError):
            receiver.addresses(receiver.parse("https://hooks.test", []), [], resolve=slow, seconds=0.2)
        assert time.monotonic() - begun < 100
    finally:
        answered.set()


def test_unexpected_resolver_errors_are_not_hidden() -> None:
    """An unexpected exception from the resolver (anything but an `OSError`) is passed on to the caller."""

    def broken(_host: str) -> Sequence[str]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        receiver.addresses(receiver.parse("https://hooks.test", []), [], resolve=broken, seconds=5)


def test_localhost_is_on_the_loopback() -> None:
    """The machine's resolver maps localhost only to loopback addresses."""
    assert {ipaddress.ip_address(answer).is_loopback for answer in receiver.look_up("localhost")} == {True}


def test_the_error_names_the_field() -> None:
    """The error for an invalid URL names the request field that contains it."""
    with pytest.raises(InputInvalid) as refused:
        receiver.check_url("https://127.0.0.1/", [], path="webhook.url")
    assert [error.path for error in refused.value.errors] == ["webhook.url"]


@given(secret=st.text("abcdefghijklmnop", min_size=12, max_size=12))
def test_no_error_quotes_the_url(secret: str) -> None:
    """No error quotes any part of the URL, because the URL's path can contain a password."""
    for url in (
        f"https://10.0.0.1/{secret}",
        f"https://user:{secret}@hooks.example.com/",
        f"https://{secret}..com/",
        f"https://[{secret}]/",
        f"https://hooks.example.com:{secret}/",
        f"{secret}://hooks.example.com/",
        f"https://hooks.example.com/\n{secret}",
    ):
        with pytest.raises(InputInvalid) as refused:
            receiver.check_url(url, [])
        said = [str(refused.value), refused.value.detail, *(str(error) for error in refused.value.errors)]
        assert not any(secret in text for text in said)
        assert isinstance(refused.value.errors[0], FieldError)


@given(url=st.text() | st.from_regex(r"https?://[!-~]{0,30}(:[0-9]{0,5})?/?.{0,9}", fullmatch=True))
def test_every_text_is_accepted_or_refused_with_its_own_error(url: str) -> None:
    """For any text, the URL check either accepts it or raises its own error. An accepted URL is not refused at
    delivery."""
    try:
        receiver.check_url(url, LOOPBACK)
    except InputInvalid:
        return
    parsed = receiver.parse(url, LOOPBACK)
    assert parsed.encrypted or parsed.address is None or parsed.address.is_loopback
