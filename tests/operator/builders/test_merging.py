"""Laying a user's template over a generated one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reef_operator.builders.merging import merged


@pytest.mark.parametrize(
    ("under", "over", "expected"),
    [
        ({"a": 1}, {}, {"a": 1}),
        ({"a": 1}, {"a": 2, "b": 3}, {"a": 2, "b": 3}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 5}}, {"a": {"b": 5, "c": 2}}),
        ({"a": 1, "b": 2}, {"a": None, "c": None}, {"b": 2}),
        ({"a": 0}, {"b": 1}, {"a": 0, "b": 1}),
        ({"command": ["a", "b"]}, {"command": ["c"]}, {"command": ["c"]}),
        (
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}, {"key": "a"}]},
            {"tolerations": [{"key": "a"}, {"key": "b"}]},
        ),
        (
            {"containers": [{"name": "reef", "image": "a", "args": ["x"]}]},
            {"containers": [{"name": "side"}, {"name": "reef", "image": "b"}]},
            {"containers": [{"name": "reef", "image": "b", "args": ["x"]}, {"name": "side"}]},
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"x": 1}}]},
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "value": "1"}]},
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/a"}]},
            {"volumeMounts": [{"name": "v", "mountPath": "/b"}, {"name": "w", "mountPath": "/a"}]},
            {"volumeMounts": [{"name": "w", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]},
        ),
        (
            {"volumes": [{"name": "s", "emptyDir": {}}]},
            {"volumes": [{"name": "s", "hostPath": {"path": "/"}}]},
            {"volumes": [{"name": "s", "hostPath": {"path": "/"}}]},
        ),
    ],
)
def test_merging(under: Any, over: Any, expected: Any) -> None:
    before = copy.deepcopy((under, over))
    assert merged(under, over) == expected
    assert (under, over) == before, "arguments are left alone"


LEAVES = st.integers(0, 2) | st.text("ab", max_size=1) | st.lists(st.integers(0, 2), max_size=2)
TREES = st.recursive(
    LEAVES, lambda inner: st.dictionaries(st.sampled_from(["a", "containers", "env"]), inner, max_size=3), max_leaves=8
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(TREES, TREES)
def test_laying_the_same_template_twice_changes_nothing_more(under: Any, over: Any) -> None:
    once = merged(under, over)
    assert merged(once, over) == once
