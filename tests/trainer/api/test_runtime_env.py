"""The runtime environment of user code: typed, and nothing in it that only the workers would get."""

from __future__ import annotations

from typing import Any

import pytest

from reef.api import job_from_document
from reef.api.pods import RuntimeEnv
from reef.api.schema import custom_resource_definition
from reef.errors import ConfigError


def read(runtime_env: Any) -> RuntimeEnv:
    spec = {"algorithm": "PPO", "environment": {"name": "E"}, "stop": {"training_iteration": 1}}
    document = {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": {"name": "job"}}
    return job_from_document(document | {"spec": spec | {"runtimeEnv": runtime_env}}).spec.runtime_env


def test_what_is_given_is_there() -> None:
    given = {"env_vars": {"URL": "http://a/b=c"}, "working_dir": "/code", "py_modules": ["/lib/one", "/lib/two/"]}
    found = read(given)
    assert found.model_dump(exclude_defaults=True) == given
    assert found.import_path == ["/code", "/lib", "/lib"], "a package is found in the folder that holds it"
    assert (read({}).model_dump(exclude_defaults=True), read({}).import_path) == ({}, [])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"env_vars": {"N": 4}}, r"spec.runtimeEnv.env_vars.N: should be a valid string, not 4"),
        ({"env_vars": None}, r"spec.runtimeEnv.env_vars: should be a valid mapping, not None"),
        ({"env_vars": {"A=B": "c"}}, r"'A=B'.*leave out '='"),
        ({"env_vars": {"": "c"}}, "name it"),
        ({"py_modules": "folder"}, r"spec.runtimeEnv.py_modules: should be a valid list, not 'folder'"),
        ({"py_modules": ["s3://b/m.zip"]}, r"spec.runtimeEnv.py_modules\[0\]: 's3://b/m.zip' is not available"),
        ({"working_dir": "https://h/c.zip"}, r"workers only. Put the code into spec.image, or mount it"),
        ({"working_dir": ""}, "at least 1 character"),
        ({"envVars": {}}, r"spec.runtimeEnv.envVars: is no field. Did you mean 'env_vars'\?"),
        ({"excludes": []}, "Fields here: env_vars, py_modules, working_dir"),
        (["a"], "should be a mapping"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(given: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        read(given)


@pytest.mark.parametrize("key", ["pip", "uv", "conda"])
def test_packages_are_refused_where_only_the_workers_would_get_them(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} is not available: the head makes the environment too"):
        read({key: ["numpy"]})


def test_the_definition_types_it_and_leaves_unknown_keys_for_the_operator_to_name() -> None:
    spec = custom_resource_definition({})["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    found = spec["properties"]["runtimeEnv"]
    assert found["x-kubernetes-preserve-unknown-fields"] is True
    assert found["properties"]["env_vars"]["additionalProperties"] == {"type": "string"}
    assert found["properties"]["py_modules"]["items"]["type"] == "string"
