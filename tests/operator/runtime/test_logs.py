"""Log lines."""

from __future__ import annotations

import json
import logging
import sys

from reef_operator.model import Create
from reef_operator.runtime.logs import JsonFormatter, TextFormatter


def record(message: str, **extra):
    return logging.makeLogRecord({"name": "reef_operator.x", "levelname": "INFO", "msg": message, **extra})


def test_a_line_is_json_with_the_job():
    line = JsonFormatter().format(record('say "hi"\nthere', namespace="ns", job="j"))
    assert "\n" not in line
    found = json.loads(line)
    assert (found["message"], found["namespace"], found["job"]) == ('say "hi"\nthere', "ns", "j")
    assert (found["level"], found["logger"]) == ("info", "reef_operator.x")


def test_kopfs_lines_name_the_job_too():
    found = json.loads(JsonFormatter().format(record("x", k8s_ref={"namespace": "ns", "name": "j"})))
    assert (found["namespace"], found["job"]) == ("ns", "j")


def test_a_traceback_stays_in_the_line():
    try:
        raise ValueError("broken")
    except ValueError:
        line = JsonFormatter().format(record("x", exc_info=sys.exc_info()))
    assert "ValueError: broken" in json.loads(line)["exception"]


def test_text_for_people():
    assert TextFormatter().format(record("made", namespace="ns", job="j")).endswith("INFO    ns/j made")


def test_a_body_with_a_token_never_shows_itself():
    secret = {"kind": "Secret", "metadata": {"name": "t"}, "stringData": {"token": "f00d"}}
    assert "f00d" not in JsonFormatter().format(record("%s", args=(Create(secret),)))
