"""Applications that bring their own loop: who reaches the policy server of the head, and with which token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from reef.api.fields import DataKey, DocumentModel, HostName, ObjectName, Text, server_rules

POLICY_PORT = 9900  # of the policy server, in the head's pod and of its Service
TOKEN_VARIABLE = "REEF_POLICY_TOKEN"  # noqa: S105 - the head's environment variable that holds the token
MANY = 64


class TokenReference(DocumentModel):
    """A token in a Secret of the job's namespace."""

    name: ObjectName = Field(description="Name of the Secret.")
    key: DataKey = Field(default="token", description="Key of the Secret under which the token is.")


class LabelExpression(DocumentModel):
    """A condition that labels meet."""

    key: Text = Field(description="Label that is looked at.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="In and NotIn compare with values; Exists and DoesNotExist do not."
    )
    values: Annotated[list[str], Field(max_length=MANY)] = Field(
        default_factory=list, description="Values for In and NotIn."
    )


class LabelSelector(DocumentModel):
    """Labels that namespaces or pods have; without any condition it selects all of them."""

    match_labels: dict[str, str] = Field(default_factory=dict, description="Labels with these values.")
    match_expressions: Annotated[list[LabelExpression], Field(max_length=MANY)] = Field(
        default_factory=list, description="Conditions, all of which hold."
    )


class ClientSelector(DocumentModel):
    """Pods in which applications run."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    namespace_selector: LabelSelector | None = Field(
        default=None, description="Namespaces of these pods, by their labels; none means the job's own namespace."
    )
    pod_selector: LabelSelector | None = Field(
        default=None, description="These pods, by their labels; none means all pods of the namespaces."
    )

    @model_validator(mode="after")
    def _selects(self) -> Self:
        if self.namespace_selector is None and self.pod_selector is None:
            raise ValueError(
                "selects nothing: give namespaceSelector, podSelector or both; podSelector {} means all pods of the "
                "job's namespace"
            )
        return self


class PolicyIngress(DocumentModel):
    """The Ingress by which applications outside of the cluster reach the policy server, always with TLS."""

    host: HostName = Field(description="Host name of the address https://HOST that applications use.")
    tls_secret_name: ObjectName | None = Field(
        default=None,
        description="Secret with the host's certificate and key; none means the Ingress controller's certificate.",
    )


class ExternalInput(DocumentModel):
    """Applications outside of the job that play at its policy server."""

    model_config = server_rules(
        (
            "has(self.from) || has(self.ingress)",
            "nothing may connect: add from, the pods that may, or ingress, or both",
        ),
    )

    token_secret_ref: TokenReference = Field(description="Secret with the token that applications send.")
    from_: Annotated[list[ClientSelector], Field(min_length=1, max_length=MANY)] = Field(
        alias="from",
        default_factory=list,
        description="Pods that may connect to the policy server, as in a NetworkPolicy; no other pods may. Needed "
        "without an ingress.",
    )
    ingress: PolicyIngress | None = Field(
        default=None,
        description="Ingress for applications outside of the cluster, where the chart's ingress.enabled allows it; "
        "none keeps them out.",
    )

    @model_validator(mode="before")
    @classmethod
    def _guarded(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and (problems := "\n".join(_unguarded(given))):
            raise ValueError(problems)
        return given


def _unguarded(given: Mapping[str, Any]) -> Iterator[str]:
    if given.get("tokenSecretRef", given.get("token_secret_ref")) is None:
        yield (
            "tokenSecretRef is missing: without a token every pod that reaches the policy server could change what is "
            "learned. Make a Secret with `kubectl create secret generic NAME --from-literal=token=$(openssl rand -hex "
            "32)`, and give {name: NAME}"
        )
    if not given.get("from", given.get("from_")) and given.get("ingress") is None:
        yield (
            "from names no pods, which in a NetworkPolicy would let in all: give a list such as [{podSelector: "
            "{matchLabels: {app: game}}}], or an ingress"
        )
