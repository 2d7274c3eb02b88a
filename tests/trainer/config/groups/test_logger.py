"""Settings of loggers that are wrong: reef.config.groups.logger."""

from __future__ import annotations

import re
from typing import Any

import pytest

from reef import PPOConfig
from reef.errors import ConfigError


def test_settings_of_loggers_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"logger_config=\['path'\]: there is no logger_creator that takes it"):
        PPOConfig.from_dict({"logger_config": {"path": "x"}}).validate()
    given = {"logger_creator": "wandb", "logger_config": {"tags": ["key"], "key_metric": "x"}}
    PPOConfig.from_dict(given).validate()


CASES = [
    ({"api_key": "x123"}, "api_key"),
    ({"apikey": "x123"}, "apikey"),
    ({"api-key": "x123"}, "api-key"),
    ({"apiKey": "x123"}, "apiKey"),
    ({"passwd": "x123"}, "passwd"),
    ({"settings": {"api_key": "x123"}}, "settings.api_key"),
    ({"servers": [{"Access-Token": "x123"}]}, "servers.Access-Token"),
]


@pytest.mark.parametrize(("given", "named"), CASES)
def test_secrets_among_the_arguments_are_refused(given: dict[str, Any], named: str) -> None:
    message = f"logger_config: '{named}' may hold a secret.*WANDB_API_KEY"
    with pytest.raises(ConfigError, match=message) as refused:
        PPOConfig.from_dict({"logger_creator": "wandb", "logger_config": given}).validate()
    assert "x123" not in str(refused.value)


@pytest.mark.parametrize(
    ("creator", "message"),
    [
        ("nomod:X", "logger_creator 'nomod:X': there is no module 'nomod'"),
        ("wandbs", "logger_creator 'wandbs': expected the form 'package.module:Name'. Did you mean 'wandb'?"),
        (f"{__name__}:CASES", "expected a class derived from reef.run.reporters.reporter.Reporter"),
    ],
)
def test_a_logger_that_there_is_not_is_refused_before_anything_begins(creator: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        PPOConfig.from_dict({"logger_creator": creator}).validate()
