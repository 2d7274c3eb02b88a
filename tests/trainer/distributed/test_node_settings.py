"""What Ray's nodes are told."""

from __future__ import annotations

import pytest

from reef.distributed.node_settings import address_of, host_and_port


@pytest.mark.parametrize(
    ("host", "address"),
    [("10.0.0.1", "10.0.0.1:6379"), ("fd00::1", "[fd00::1]:6379"), ("j-head.ns.svc", "j-head.ns.svc:6379")],
)
def test_addresses(host: str, address: str) -> None:
    assert address_of(host, 6379) == address
    assert host_and_port(address) == (host, 6379)


def test_an_address_without_a_port() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        host_and_port("auto")
