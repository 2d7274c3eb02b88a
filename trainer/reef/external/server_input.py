"""`PolicyServerInput`: an input that waits at a port for applications."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from typing import Any

from reef.errors import ConfigError, PolicyServerError
from reef.external.episodes.open_episodes import ClientLimits
from reef.external.episodes.queue import StepQueue
from reef.external.listening.connections import allow_connections, is_loopback, listening
from reef.external.listening.token import read_token
from reef.external.policies import PoliciesOfApplications
from reef.external.server import PolicyServer
from reef.run.reporters.reporter import Applications

log = logging.getLogger(__name__)
FEWEST_QUEUED_STEPS = 1000


class PolicyServerInput:
    """A server at which applications ask for actions, and what they played, for the worker that it belongs to.

    It listens from when it is made, and answers once the worker has its policy.
    """

    def __init__(
        self,
        ioctx: Any,  # of the function in `input_`; the worker comes with `serve`, so that None will do
        address: str = "127.0.0.1",
        port: int = 9900,
        idle_timeout: float = 3.0,  # seconds after which a sample is returned that is not complete
        *,
        token_env: str | None = None,  # environment variable that holds the token of clients
        token_file: str | None = None,  # or the file that does
        max_queued_steps: int | None = None,  # which wait to be learned from; None: two train batches, at least 1000
        max_episodes: int = 1000,  # open at the same time
        episode_timeout: float = 300.0,  # seconds without a request, after which an episode is dropped
        max_request_bytes: int = 16 * 2**20,
        max_connections: int = 1000,  # at the same time
    ) -> None:
        """Port 0 takes any free one, see `port`. Without a token, everybody who reaches the port is a client.

        Raises:
            ConfigError: an argument is wrong, or there is no token where one should be.
            OSError: the port is in use, or the address is another machine's; it is printed too.
        """
        numbers = {
            "idle_timeout": idle_timeout,
            "max_queued_steps": 1 if max_queued_steps is None else max_queued_steps,
            "max_episodes": max_episodes,
            "episode_timeout": episode_timeout,
            "max_request_bytes": max_request_bytes,
            "max_connections": max_connections,
        }
        if problems := [*_problems(address, port, numbers)]:
            raise ConfigError("\n".join(problems))
        self.idle_timeout = float(idle_timeout)
        self._max_queued_steps = max_queued_steps
        allow_connections(max_connections, f"max_connections={max_connections}")
        self._limits = ClientLimits(max_episodes, float(episode_timeout), max_request_bytes, max_connections)
        self._token = read_token(token_env, token_file)
        self._server: PolicyServer | None = None
        self.queue = StepQueue(FEWEST_QUEUED_STEPS)
        try:
            self._socket = listening(address, port)
        except socket.gaierror as error:
            raise ConfigError(f"address={address!r}: {error.strerror}. Give one of this machine.") from error
        except OSError as error:
            print(f"PolicyServerInput cannot listen at {address}:{port}: {error}")
            raise
        self.address, self.port = address, int(self._socket.getsockname()[1])
        if self._token is None and not is_loopback(address):
            log.warning(
                "the policy server at %s:%d has no token, so that everybody who reaches it can change what is "
                "learned. Give token_env or token_file, or address='127.0.0.1'.", address, self.port,
            )  # fmt: skip

    def serve(self, policies: PoliciesOfApplications) -> None:
        """Answer clients with these policies, from a thread of its own, until `stop`."""
        most = self._max_queued_steps
        if most is None:
            most = max(2 * policies.config.total_train_batch_size, FEWEST_QUEUED_STEPS)
        self.queue = StepQueue(most)
        self._server = PolicyServer(self._socket, policies, self.queue, self._limits, self._token)
        log.info("policy server at http://%s:%d", self.address, self.port)

    def drop_episodes(self) -> None:
        """Drop the open episodes and what waits to be learned from, see `PolicyServer.drop_episodes`."""
        if self._server is not None:
            self._server.drop_episodes()

    def check(self) -> None:
        """Raise PolicyServerError where the server's thread failed: no application is answered any more."""
        if self._server is not None and (failure := self._server.failure) is not None:
            raise PolicyServerError(
                f"the policy server at {self.address}:{self.port} stopped: {failure!r}"
            ) from failure

    def applications(self) -> Applications:
        """What applications have here at this moment; from any thread."""
        server = self._server
        return Applications(
            open_episodes=server.open_episodes if server else 0,
            queued_steps=self.queue.steps,
            refused=dict(server.refused) if server else {},
        )

    def stop(self) -> None:
        """Close all connections, and free the port."""
        if self._server is not None:
            self._server.stop()
        self._socket.close()


def _problems(address: Any, port: Any, numbers: dict[str, Any]) -> Iterator[str]:
    if not isinstance(address, str) or not address:
        yield f"address={address!r}: expected the address to listen at, such as '127.0.0.1' or '0.0.0.0'."
    if type(port) is not int or not 0 <= port < 65536:
        yield f"port={port!r}: expected a whole number from 0 to 65535."
    for name, value in numbers.items():
        whole = name.startswith("max_")
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not value > 0:
            yield f"{name}={value!r}: expected a {'whole ' * whole}number above 0."
