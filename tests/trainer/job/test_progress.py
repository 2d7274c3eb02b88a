"""The termination message always is JSON of at most 4096 bytes, and /progress says what the head does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reef.api.status import TrialsStatus, TrialStatus
from reef.job.progress import CUT, LARGEST, HeadState, TerminationMessage


def test_before_training_everything_is_there_but_the_training_itself() -> None:
    head_state = HeadState()
    head_state.enter("waiting", "waiting for workers")
    progress = head_state.progress()
    assert (progress["state"], progress["message"]) == ("waiting", "waiting for workers")
    assert (progress["workersHealthy"], progress["workersRecreated"]) == (0, 0)
    assert progress["time"].endswith("Z")
    assert "training" not in progress, "the job's status keeps what an earlier head said of it"
    assert json.loads(head_state.ending(1, "no workers"))["training"] is None


def test_a_head_that_is_done_says_with_which_code_it_will_end() -> None:
    head_state = HeadState()
    assert "exitCode" not in head_state.progress()
    head_state.enter("done", "training_iteration 6 >= 6", exit_code=0)
    assert (head_state.progress()["state"], head_state.progress()["exitCode"]) == ("done", 0)


@pytest.mark.parametrize(("code", "reason"), [(0, "Completed"), (2, "WrongJob"), (143, "Terminated"), (1, "Failed")])
def test_an_ending_has_a_reason_in_one_word(code: int, reason: str) -> None:
    ending = json.loads(HeadState().ending(code, "why"))
    assert (ending["exitCode"], ending["reason"], ending["message"]) == (code, reason, "why")
    assert (ending["evaluation"], ending["checkpoint"], ending["bestTrial"]) == (None, None, None)
    assert ending["workersRecreated"] == 0


@pytest.mark.parametrize("text", ["x" * 20_000, "\n" * 20_000, "\U0001f40b" * 9_000, 'a"b\\' * 5_000, "\udcff" * 4_000])
def test_a_long_message_loses_its_middle_and_the_json_stays_whole(text: str) -> None:
    data = HeadState().ending(1, "first" + text + "last")
    assert LARGEST - 200 < len(data) <= LARGEST
    message = json.loads(data)["message"]
    assert message.startswith("first")
    assert message.endswith("last")
    assert CUT in message


def test_the_best_trial_is_told_at_the_end_unless_its_parameters_leave_no_room() -> None:
    head_state = HeadState()
    head_state.swept(TrialStatus(name="trial_0001", config={"lr": 0.1}, metric=9.0), TrialsStatus(total=2, finished=2))
    assert head_state.progress()["bestTrial"]["config"] == {"lr": 0.1}
    ending = json.loads(head_state.ending(0, "done"))
    assert (ending["bestTrial"]["name"], ending["trials"]["finished"]) == ("trial_0001", 2)
    head_state.swept(TrialStatus(name="trial_0001", config={"layers": ["x" * 4000]}), TrialsStatus(total=2, finished=2))
    data = head_state.ending(1, "y" * 5000)
    assert len(data) <= LARGEST
    assert (json.loads(data)["bestTrial"], json.loads(data)["trials"]["total"]) == (None, 2)


def test_a_message_that_fits_is_not_cut() -> None:
    head_state = HeadState()
    room = LARGEST - len(head_state.ending(1, ""))
    for length in (room, room + 1):
        data = head_state.ending(1, "x" * length)
        assert len(data) <= LARGEST
        assert (CUT in json.loads(data)["message"]) == (length > room)


def test_a_message_is_ready_for_a_sudden_end_and_the_first_real_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "log"
    termination = TerminationMessage(path, HeadState())
    termination.prepare()
    assert "without a message" in json.loads(path.read_bytes())["message"]
    termination.write(2, "wrong")
    termination.prepare()
    termination.write(1, "later")
    assert json.loads(path.read_bytes())["message"] == "wrong"


def test_a_message_that_cannot_be_written_is_no_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    TerminationMessage(tmp_path / "missing" / "log", HeadState()).write(1, "why")
    assert "cannot be written" in caplog.text
