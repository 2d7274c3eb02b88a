"""What every part of the job document is built from: the model settings, names, quantities and free mappings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PlainValidator,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

DNS_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
OBJECT_NAME = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"
QUANTITY = r"^[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+|[munkMGTPE]|[KMGTPE]i)?$"
HOST_NAME = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z]([-a-z0-9]*[a-z0-9])?$"  # of DNS, and no address
RESOURCE_NAME = r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$"
DATA_KEY = r"^\.?[-_A-Za-z0-9][-._A-Za-z0-9]*$"  # neither "." alone nor ".." at the start
MAX_KEYS = 1000  # of a mapping whose keys nothing else limits
STORAGE_URI = r"^(s3|gs|az|abfss?|file)://[^?#:\s]+$"  # no ":" and "?": credentials do not belong into it

EXPLAINED = {  # what a person reads when a text does not fit its pattern
    DNS_LABEL: "lower-case letters, digits and '-', beginning with a letter and not ending with '-'",
    OBJECT_NAME: "the name of a Kubernetes object: lower-case letters, digits, '-' and '.'",
    HOST_NAME: "a host name, such as game.example.com, without https://, port and path",
    RESOURCE_NAME: "a resource's name, such as nvidia.com/gpu or nvidia.com/mig-1g.5gb",
    DATA_KEY: "a key of a Secret: letters, digits, '-', '_' and '.', neither '.' alone nor '..' at the start",
    STORAGE_URI: "an object store and a folder in it: s3://bucket/folder, gs://bucket/folder, az://container/folder, "
    "abfs://container@account.dfs.core.windows.net/folder or file:///folder, without ':', '?' and '#'",
}
LARGEST_QUANTITY = 2.0**63
_FACTORS = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18} | {
    prefix + "i": 1024.0**power for power, prefix in enumerate("KMGTPE", start=1)
}


class DocumentModel(BaseModel):
    """A mapping of the job document: camelCase keys, unknown keys refused, no coercion between types."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,  # for Python code; `job_from_document` reads documents by their camelCase keys only
        validate_by_alias=True,
        extra="forbid",
        strict=True,
        frozen=True,
    )


def server_rules(*rules: tuple[str, str]) -> ConfigDict:
    """The settings of a model with rules in CEL that the API server checks too, each with its message."""
    checks: list[JsonValue] = [{"rule": rule, "message": message} for rule, message in rules]
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": checks})


def refuse(problems: Iterable[str], field: str, info: ValidationInfo) -> None:
    """Raise ValueError with the problems of a field of the spec, if there are any.

    Unless it was accepted as it is, maybe by a version that knows more: see `job_from_document`.
    """
    found = [*problems]
    if found and field not in (info.context or {}).get("accepted", ()):
        raise ValueError("\n".join(found))


def shown(value: Any) -> str:
    """A value as an error shows it: what is long by its type alone."""
    text = repr(value)
    return text if len(text) <= 60 else type(value).__name__


def _quantity(value: Any) -> str:
    text = str(value)
    if isinstance(value, bool | float) or not re.match(QUANTITY, text):
        raise ValueError(
            f"{shown(value)} is no Kubernetes quantity: give a whole number or a text such as '500m', '0.5' or '4Gi'"
        )
    quantity_value(text)
    return text


def quantity_value(quantity: str) -> float:
    """Return a Kubernetes quantity as a number: '500m' is 0.5 and '1Ki' is 1024.0.

    Raises:
        ValueError: it is none, or more than Kubernetes can count.
    """
    try:
        value = float(quantity)
    except ValueError:
        number, suffix = re.split(r"(?<=[0-9])(?=[A-Za-z])", quantity, maxsplit=1)
        value = float(number) * _FACTORS[suffix]
    if not abs(value) < LARGEST_QUANTITY:
        raise ValueError(f"{shown(quantity)} is more than Kubernetes can count, which is 2^63 - 1")
    return value


Name = Annotated[str, StringConstraints(pattern=DNS_LABEL, max_length=63)]
ObjectName = Annotated[str, StringConstraints(pattern=OBJECT_NAME, max_length=253)]
HostName = Annotated[str, StringConstraints(pattern=HOST_NAME, max_length=253)]
ResourceName = Annotated[str, StringConstraints(pattern=RESOURCE_NAME, max_length=253)]
DataKey = Annotated[str, StringConstraints(pattern=DATA_KEY, max_length=253)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Quantity = Annotated[
    str,
    PlainValidator(_quantity),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string", "pattern": QUANTITY}]}),
]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
PositiveCount = Annotated[int, Field(ge=1, le=1_000_000)]
Seconds = Annotated[int, Field(ge=0, le=10 * 365 * 24 * 3600)]
PositiveSeconds = Annotated[int, Field(ge=1, le=10 * 365 * 24 * 3600)]
Number = Annotated[float, Field(allow_inf_nan=False)]
# Checked by the part that owns its meaning: the settings, Ray, or Kubernetes.
FreeMapping = Annotated[dict[str, Any], Field(max_length=MAX_KEYS)]
