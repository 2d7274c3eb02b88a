"""The manifest that serves a policy: its parts fit together, its command is right, and its pods may do little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from reef.cli.main import build_parser
from reef.serving.server import END_S

FILE = Path(__file__).parents[2] / "examples" / "serve-policy.yaml"
FOUND: dict[str, dict[str, Any]] = {each["kind"]: each for each in yaml.safe_load_all(FILE.read_text())}
TEMPLATE = FOUND["Deployment"]["spec"]["template"]
POD = TEMPLATE["spec"]
(CONTAINER,) = POD["containers"]


def test_the_command_is_one_that_reef_takes_and_reads_what_is_mounted() -> None:
    program, *arguments = CONTAINER["command"]
    given = build_parser().parse_args(arguments)
    assert (program, given.command, given.host) == ("reef", "serve", "0.0.0.0")
    mounts = {each["name"]: each["mountPath"] for each in CONTAINER["volumeMounts"]}
    assert mounts.keys() == {each["name"] for each in POD["volumes"]}
    assert given.token_file.startswith(f"{mounts['token']}/") and given.checkpoint.startswith(f"{mounts['results']}/")
    secret = next(each["secret"]["secretName"] for each in POD["volumes"] if each["name"] == "token")
    key = Path(given.token_file).name
    assert f"kubectl create secret generic {secret} --from-literal={key}=" in FILE.read_text()


def test_service_policy_and_probes_lead_to_the_port_of_the_server() -> None:
    given = build_parser().parse_args(CONTAINER["command"][1:])
    (port,) = CONTAINER["ports"]
    assert port["containerPort"] == given.port == FOUND["NetworkPolicy"]["spec"]["ingress"][0]["ports"][0]["port"]
    assert FOUND["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert CONTAINER[probe]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    labels = TEMPLATE["metadata"]["labels"].items()
    for kind, selector in (("Deployment", "selector"), ("NetworkPolicy", "podSelector")):
        assert FOUND[kind]["spec"][selector]["matchLabels"].items() <= labels
    assert FOUND["Service"]["spec"]["selector"].items() <= labels


def test_it_ends_after_the_last_answer() -> None:
    pause_s = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    assert POD["terminationGracePeriodSeconds"] > pause_s + END_S


def test_its_pods_have_the_rights_of_a_jobs_pods() -> None:
    assert (POD["automountServiceAccountToken"], POD["enableServiceLinks"]) == (False, False)
    whole, own = POD["securityContext"], CONTAINER["securityContext"]
    assert (whole["runAsNonRoot"], whole["runAsUser"], whole["fsGroup"]) == (True, 1000, 1000)
    assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
    assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert all(each["readOnly"] for each in CONTAINER["volumeMounts"] if each["name"] != "tmp")
    assert FOUND["NetworkPolicy"]["spec"]["egress"] == []
