"""A host has one spelling, whoever reads it."""

import pytest

from xmlcall.addresses import host_readings, is_inside


@pytest.mark.parametrize(
    ("host", "readings"),
    [
        ("Example.COM.", ("example.com",)),
        ("2130706433", ("127.0.0.1",)),
        ("[::ffff:127.0.0.1]", ("::ffff:7f00:1", "127.0.0.1")),
        ("[::1]", ("::1",)),
        ("a:b:c", ("a:b:c",)),  # no address, and no name
        ("bücher.example", ("xn--bcher-kva.example",)),
        (f"{'ü' * 70}.example", (f"{'ü' * 70}.example",)),  # too long a label for IDNA
        ("A" * 5_000, ("a" * 5_000,)),
    ],
)
def test_a_host_has_one_spelling(host: str, readings: tuple[str, ...]) -> None:
    assert host_readings(host) == readings


INSIDE = ["localhost", "localhost..", "x.localhost.localdomain", "printer", "router.local", "host.docker.internal", "[fec0::1]"]
INSIDE += ["[2001:db9::5efe:7f00:1]", "224.0.0.1", "2130706433"]


@pytest.mark.parametrize(("host", "expected"), [*((host, True) for host in INSIDE), ("example.com", False), ("8.8.8.8", False)])
def test_a_name_that_no_public_dns_has_is_inside(host: str, expected: bool) -> None:
    assert is_inside(host) is expected
