"""A host has one spelling, whoever reads it."""

import pytest

from xmlcall.addresses import host_readings


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
