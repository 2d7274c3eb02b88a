"""The resolver's answers, byte by byte; that pods can use them is in test_cluster_itself.py."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kube.api import ApiError
from kube.resolver import Names, answer

SITE = "site.ours.svc.cluster.local"


class Objects:
    """What the API server would say; `away` as if it could not be reached."""

    def __init__(self) -> None:
        self.away = False
        pods = [{"ip": "10.0.0.2", "hostname": "first"}, {"ip": "10.0.0.3"}]
        self.found: dict[str, Any] = {
            "services/site": {"spec": {"clusterIP": "10.9.9.9"}},
            "services/pods": {"spec": {"clusterIP": "None"}},
            "endpoints/pods": {"subsets": [{"addresses": pods, "notReadyAddresses": [{"ip": "10.0.0.4"}]}]},
            "services/nobody": {"spec": {"clusterIP": "None"}},
            "endpoints/nobody": {},
        }

    def request(self, method: str, path: str) -> Any:
        if self.away:
            raise OSError("away")
        try:
            return self.found[path.removeprefix("/api/v1/namespaces/ours/")]
        except KeyError:
            raise ApiError(404, path) from None


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
def names(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> Names:
    monkeypatch.setattr("kube.resolver.KEEP_S", 0.0)
    return Names(objects)  # type: ignore[arg-type]


def query(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 0xABCD, 0x0100, 1, 0, 0, 0) + labels + struct.pack("!BHH", 0, kind, 1)


def code_and_addresses(reply: bytes, asked: bytes) -> tuple[int, list[str]]:
    number, flags, questions, answers, _, _ = struct.unpack("!HHHHHH", reply[:12])
    assert (number, flags & 0x8000, questions) == (0xABCD, 0x8000, 1)
    assert reply[12 : len(asked)] == asked[12:]
    records = [reply[len(asked) + 16 * each :][:16] for each in range(answers)]
    assert len(reply) == len(asked) + 16 * answers
    return flags & 0xF, [".".join(map(str, record[12:])) for record in records]


@pytest.mark.parametrize(
    ("name", "code", "addresses"),
    [
        (SITE, 0, ["10.9.9.9"]),
        (SITE.upper(), 0, ["10.9.9.9"]),
        ("pods.ours.svc.cluster.local", 0, ["10.0.0.2", "10.0.0.3"]),
        ("first.pods.ours.svc.cluster.local", 0, ["10.0.0.2"]),
        ("second.pods.ours.svc.cluster.local", 3, []),
        ("nobody.ours.svc.cluster.local", 3, []),
        ("absent.ours.svc.cluster.local", 3, []),
        ("a.b.site.ours.svc.cluster.local", 3, []),
        ("svc.cluster.local", 3, []),
        ("example.com", 3, []),
    ],
)
def test_a_name_has_these_addresses(names: Names, name: str, code: int, addresses: list[str]):
    asked = query(name)
    assert code_and_addresses(answer(asked, names), asked) == (code, addresses)


def test_a_name_without_addresses_of_the_other_kind_exists_all_the_same(names: Names):
    asked = query(SITE, kind=28)  # AAAA
    assert code_and_addresses(answer(asked, names), asked) == (0, [])


def test_known_names_outlive_the_api_server(names: Names, objects: Objects):
    asked = query(SITE)
    answer(asked, names)
    objects.away = True
    assert code_and_addresses(answer(asked, names), asked) == (0, ["10.9.9.9"])
    other = query("pods.ours.svc.cluster.local")
    assert code_and_addresses(answer(other, names), other) == (2, [])


@pytest.mark.parametrize("wrong", [b"", b"short", query(SITE)[:-8], query(SITE)[:2] + b"\x80" + query(SITE)[3:]])
def test_what_is_no_query_gets_no_answer(names: Names, wrong: bytes):
    with pytest.raises((ValueError, IndexError, struct.error)):
        answer(wrong, names)
