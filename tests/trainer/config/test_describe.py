"""Descriptions agree with the declarations and with what validation takes."""

import jsonschema
import pytest

from reef.config import AlgorithmConfig, ModelConfig, default
from reef.config.describe import json_schema, settings_of
from reef.config.refusals import REFUSALS

SCHEMA = json_schema(AlgorithmConfig)


def test_every_setting_is_described_once_with_type_and_meaning():
    infos = settings_of(AlgorithmConfig)
    names = [info.name for info in infos]
    assert len(names) == len(set(names))
    assert {"lr", "framework", "model.fcnet_hiddens"} <= set(names)
    for info in infos:
        assert info.doc.endswith("."), info.name
        assert info.type
        assert info.group


def test_the_default_of_a_models_setting_is_the_algorithms():
    class Apart(AlgorithmConfig):
        model: ModelConfig = default({"vf_share_layers": False})

    found = {
        kind: next(info.default for info in settings_of(kind) if info.name == "model.vf_share_layers")
        for kind in (AlgorithmConfig, Apart)
    }
    assert found == {AlgorithmConfig: True, Apart: False}


def test_groups_come_one_after_the_other():
    groups = [info.group for info in settings_of(AlgorithmConfig)]
    changes = [group for index, group in enumerate(groups) if index == 0 or groups[index - 1] != group]
    assert len(changes) == len(set(changes)) == 15


def test_limits_and_availability_are_told():
    infos = {info.name: info for info in settings_of(AlgorithmConfig)}
    assert (infos["gamma"].minimum, infos["gamma"].maximum, infos["lr"].above) == (0.0, 1.0, 0.0)
    assert infos["grad_clip_by"].choices == ("value", "norm", "global_norm")
    assert (REFUSALS["postprocess_inputs"].advice, "gamma" in REFUSALS) == ("not available yet", False)
    assert "torch_threads_per_worker" in REFUSALS["tf_session_args"].advice


def test_the_schema_is_one_and_takes_the_defaults():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(AlgorithmConfig().to_dict(), SCHEMA)


@pytest.mark.parametrize(
    ("settings", "taken"),
    [
        ({"lr": 0.1, "rollout_fragment_length": "auto", "model": {"fcnet_hiddens": [4]}}, True),
        ({"num_workers": 2}, True),
        ({"lr": [[0, 1.0]]}, True),
        ({"lr": 0}, False),
        ({"gamma": 1.5}, False),
        ({"num_envs_per_worker": 1.5}, False),
        ({"batch_mode": "whole"}, False),
        ({"model": {"fcnet_hidden": [4]}}, False),
        ({"unknown": 1}, False),
        ({"callbacks": None, "policies": ["default_policy"], "model": {"use_lstm": False}}, True),
    ],
    ids=repr,
)
def test_the_schema_takes_what_validation_takes(settings, taken):
    assert jsonschema.Draft202012Validator(SCHEMA).is_valid(settings) is taken


def test_older_spellings_are_marked():
    assert SCHEMA["properties"]["num_workers"]["deprecated"] is True
    assert "deprecated" not in SCHEMA["properties"]["num_rollout_workers"]
