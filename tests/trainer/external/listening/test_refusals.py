"""Errors as answers of a server."""

from __future__ import annotations

import pytest

from reef.errors import ConfigError, EpisodeLostError, ExternalEpisodeError
from reef.external.listening.refusals import BusyError, refused
from reef.external.wire import MessageError


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BusyError("x"), 429),
        (EpisodeLostError("x"), 404),
        (ExternalEpisodeError("x"), 409),
        (MessageError("x"), 400),
        (ConfigError("x"), 400),
        (TimeoutError(), 408),
    ],
)
def test_what_a_client_can_repair_or_try_again_has_a_status(error: Exception, status: int) -> None:
    response = refused(error)
    assert response is not None
    assert response.status == status
    assert response.text == ("the body did not come within 30 s" if status == 408 else "x")
    assert response.headers.get("Retry-After") == ("1" if status == 429 else None)


def test_another_error_is_a_failure_of_the_server() -> None:
    assert refused(ValueError("x")) is None
