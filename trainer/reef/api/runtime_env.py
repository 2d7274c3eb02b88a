"""Ray's runtime environment of a job: what the processes of a user's own code find when they start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from reef.api.fields import MAX_KEYS, DocumentModel, Text


def _variables(variables: dict[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"{name!r}: {value!r} can be no environment variable: leave out '=' and NUL, and name it")
    return variables


def _local(folder: str) -> str:
    if "://" in folder:
        raise ValueError(
            f"{folder!r} is not available: the head makes the environment too, and Ray would fetch this for the "
            "workers only. Put the code into spec.image, or mount it with spec.head.template, and name its folder"
        )
    return folder


Folder = Annotated[Text, AfterValidator(_local)]


class RuntimeEnv(DocumentModel):
    """Ray's runtime environment for user code, with Ray's own keys."""

    model_config = ConfigDict(
        alias_generator=None,
        # Other keys reach the operator, which says why there is no pip.
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True, "maxProperties": MAX_KEYS},
    )

    env_vars: Annotated[dict[str, str], AfterValidator(_variables)] = Field(
        default_factory=dict, description="Environment variables of head and workers."
    )
    working_dir: Folder | None = Field(
        default=None,
        description="Folder of the head pod that Ray copies to the workers; modules in it can be imported.",
    )
    py_modules: Annotated[list[Folder], Field(max_length=64)] = Field(
        default_factory=list,
        description="Python packages, as folders of the head pod, that Ray copies to the workers.",
    )

    @model_validator(mode="before")
    @classmethod
    def _without_packages(cls, given: Any) -> Any:
        for key in ("pip", "uv", "conda"):
            if isinstance(given, Mapping) and key in given:
                raise ValueError(
                    f"{key} is not available: the head makes the environment too, and Ray would install these packages "
                    "for the workers only. Build an image FROM the trainer's with them, and name it in spec.image"
                )
        return given

    @property
    def folders(self) -> dict[str, str]:
        """Folders that must be there, by the key that names each."""
        modules = {f"py_modules[{index}]": folder for index, folder in enumerate(self.py_modules)}
        return ({"working_dir": self.working_dir} if self.working_dir else {}) | modules

    @property
    def import_path(self) -> list[str]:
        """Where Python finds the code: in the working folder, and the packages beside each other in their parents."""
        return [*([self.working_dir] if self.working_dir else []), *(str(PurePath(m).parent) for m in self.py_modules)]
