"""The policy server of a head at which applications outside of the job play: `spec.externalInput`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reef.api.external import POLICY_PORT, TOKEN_VARIABLE
from reef.config.groups.inputs import POLICY_SERVER
from reef.errors import ConfigError

if TYPE_CHECKING:
    from reef.config import AlgorithmConfig

TOKENS = ("token_env", "token_file")


def check_external_input(config: AlgorithmConfig) -> None:
    """Raise ConfigError where the settings of a document with `spec.externalInput` make no policy server for it."""
    if problems := "\n".join(_problems(config)):
        raise ConfigError(problems)


def _problems(config: AlgorithmConfig) -> Iterator[str]:
    if config.input_ != POLICY_SERVER:
        yield (
            f"spec.config.input_: {config.input_!r}, and spec.externalInput lets applications reach a policy server. "
            f"Set it to {POLICY_SERVER}, or remove spec.externalInput."
        )
    if config.num_rollout_workers:
        yield (
            f"spec.config.num_rollout_workers: {config.num_rollout_workers}, and spec.externalInput leads to the "
            "policy server of the head. Set it to 0; a pool may hold learners, with rolloutWorkers: 0."
        )
    for name in ("address", "port", *TOKENS):
        if name in config.input_config:
            yield (
                f"spec.config.input_config.{name}: {config.input_config[name]!r}: with spec.externalInput the server "
                f"listens at port {POLICY_PORT} of the head's pod, and its token is that of tokenSecretRef. Remove it."
            )


def open_to_applications(config: AlgorithmConfig, pod_ip: str) -> AlgorithmConfig:
    """The settings of the head: its policy server listens at all addresses of the pod, and asks for the token."""
    everywhere = "::" if ":" in pod_ip else "0.0.0.0"  # noqa: S104 - behind the token and the job's NetworkPolicy
    own = {"address": everywhere, "port": POLICY_PORT, "token_env": TOKEN_VARIABLE}
    return config.copy().assign({"input_config": config.input_config | own}).checked()


def check_guarded(config: AlgorithmConfig) -> None:
    """Raise ConfigError for a policy server of a pod that others may reach without a token."""
    from reef.external.listening.connections import is_loopback

    if config.input_ != POLICY_SERVER or any(config.input_config.get(name) for name in TOKENS):
        return
    address = config.input_config.get("address", "127.0.0.1")
    if isinstance(address, str) and address and not is_loopback(address):
        raise ConfigError(
            f"spec.config.input_config.address: {address!r}: whoever reaches the pod could change what is learned, as "
            "there is no token. Use spec.externalInput, or give token_env or token_file."
        )
