"""What is told of a process that is gone."""

from __future__ import annotations

import pytest
from ray.exceptions import ActorDiedError, RayActorError

from reef.distributed.failures import died

BLOCK = (
    f"{ActorDiedError.BASE_ERROR_MSG}\n\tclass_name: ActorProcess\n\tactor_id: 461fc057\n\tpid: 123\n"
    "\tnamespace: a8531d07\n\tip: 192.0.2.2\n"
)
LOST = "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: "


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            f"{LOST}Worker unexpectedly exits with a connection error code 2. End of file. Some common causes include: "
            "(1) the process was killed by the OOM killer",
            "",
        ),
        (
            f"{LOST}Worker exits with an exit code 4.",
            f"Ray: {ActorDiedError.BASE_ERROR_MSG}\n{LOST}Worker exits with an exit code 4.",
        ),
        (
            "The actor died because its node has died.",
            f"Ray: {ActorDiedError.BASE_ERROR_MSG}\nThe actor died because its node has died.",
        ),
    ],
)
def test_ray_is_quoted_where_it_names_a_cause(words: str, told: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "reef")
    failure = died(1, 123, "sample", RayActorError(error_msg=BLOCK + words))
    assert failure.error == "its process 123 died: killed, out of memory, or its node was lost"
    assert failure.traceback == told
    assert "actor_id: 461fc057" in caplog.text
