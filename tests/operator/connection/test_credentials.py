"""Credentials whose files change, against a real TLS server."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import kopf
import pytest
from aiohttp import web

from reef_operator.connection.client import ApiError, Client
from reef_operator.connection.credentials import Credentials, service_account_login

LIMIT_S = 20
NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")


@pytest.fixture
def certificates(tmp_path: Path) -> list[Path]:
    """Two that sign themselves, each with its key."""
    made = [tmp_path / "first.pem", tmp_path / "second.pem"]
    for path in made:
        names = ["-subj", f"/CN={path.stem}", "-addext", "subjectAltName=IP:127.0.0.1"]
        command = ["openssl", "req", "-x509", *NEW_KEY, "-days", "2", *names, "-keyout", path.with_suffix(".key")]
        subprocess.run([*command, "-out", path], check=True, capture_output=True)
    return made


class Server:
    """An API server that shows the certificate of now to every connection, as each lasts for one request."""

    def __init__(self, certificate: Path) -> None:
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.rotate(certificate)
        self.port = 0

    def rotate(self, certificate: Path) -> None:
        self.tls.load_cert_chain(certificate, certificate.with_suffix(".key"))

    async def answer(self, _: web.Request) -> web.Response:
        answer = web.json_response({"major": "1", "minor": "30"})
        answer.force_close()
        return answer

    async def __aenter__(self) -> Server:
        application = web.Application()
        application.router.add_get("/version", self.answer)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self.tls).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


def test_a_rotated_certificate_authority_is_read_again(tmp_path: Path, certificates: list[Path]) -> None:
    first, second = certificates
    authority = tmp_path / "ca.crt"
    shutil.copy(first, authority)

    async def test() -> None:
        async with asyncio.timeout(LIMIT_S), Server(first) as server:

            async def login() -> kopf.ConnectionInfo:
                return kopf.ConnectionInfo(server=f"https://127.0.0.1:{server.port}", ca_path=str(authority))

            async with Client(Credentials(login)) as client:
                assert (await client.server()).minor == 30
                server.rotate(second)
                with pytest.raises(ApiError, match="certificate verify failed"):
                    await client.server()
                shutil.copy(second, authority)
                assert (await client.server()).minor == 30

    asyncio.run(test())


def test_a_context_is_made_again_only_for_other_files(tmp_path: Path, certificates: list[Path]) -> None:
    authority = tmp_path / "ca.crt"
    shutil.copy(certificates[0], authority)

    async def login() -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server="https://127.0.0.1:1", ca_path=str(authority))

    async def test() -> None:
        credentials = Credentials(login)
        contexts = [(await credentials.current(renew=True))[2] for _ in range(2)]
        assert contexts[0] is contexts[1]
        authority.unlink()
        with pytest.raises(OSError, match="No such file"):
            await credentials.current(renew=True)
        shutil.copy(certificates[1], authority)
        assert (await credentials.current(renew=True))[2] is not contexts[0]

    asyncio.run(test())


@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:6443"), ("fd00::1", "https://[fd00::1]:6443")]
)
def test_the_address_of_the_api_server_may_be_of_ipv6(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, server: str
) -> None:
    monkeypatch.setattr("reef_operator.connection.credentials.SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    found = asyncio.run(service_account_login())
    assert (found.server, found.token) == (server, "secret")


@pytest.mark.parametrize(("host", "token"), [("", "secret"), ("10.0.0.1", " ")])
def test_what_is_no_pod_of_a_cluster_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, token: str
) -> None:
    monkeypatch.setattr("reef_operator.connection.credentials.SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "token").write_text(token)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    with pytest.raises(kopf.LoginError, match="no service account here: run as a pod, or with --dev"):
        asyncio.run(service_account_login())
