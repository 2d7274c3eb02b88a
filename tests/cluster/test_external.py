"""Applications outside of a job play at its policy server, by what the operator makes of `spec.externalInput`."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from installation import EXAMPLES, READ_METRICS, Installation, kill
from kube.cluster import Cluster, OwnCluster
from kube.progress import wait_until

pytestmark = pytest.mark.timeout(600)
GOAL = 450
PLAYERS = 8  # environments of the one application
PLAY = """
import os, sys
import gymnasium as gym
from reef import PolicyClient
from reef.errors import EpisodeLostError

client = PolicyClient(os.environ["ADDRESS"], inference_mode="remote")
envs = [gym.make("CartPole-v1") for _ in range(int(sys.argv[1]))]
episodes, obs = {}, {}
while True:
    try:
        for number in range(len(envs)):
            if number not in episodes:
                episodes[number] = client.start_episode()
                obs[number], _ = envs[number].reset()
        ids = {episode: number for number, episode in episodes.items()}
        actions = client.get_action(list(ids), {episode: obs[number] for episode, number in ids.items()})
        for episode, number in ids.items():
            obs[number], reward, terminated, truncated, _ = envs[number].step(actions[episode])
            client.log_returns(episode, reward)
            if terminated or truncated:
                del episodes[number]
                client.end_episode(episode, obs[number], truncated=truncated)
    except EpisodeLostError as lost:
        print("lost:", lost, flush=True)
        episodes.clear()
"""
ASK = """
import sys, time, urllib.error, urllib.request
said, limit = "not reached", time.monotonic() + 60  # in which the head starts
while said == "not reached" and time.monotonic() < limit:
    try:
        said = urllib.request.urlopen(sys.argv[1], timeout=5).status
    except urllib.error.HTTPError as refusal:
        said = refusal.code
    except OSError:
        time.sleep(0.2)
print(said)
"""


def game(claim: str, team: str) -> dict[str, Any]:
    """A job that is played by all pods of the namespaces with a label."""
    spec = {
        "algorithm": "PPO",
        "environment": {"name": "external"},
        "config": {
            "observation_space": {"type": "Box", "low": -5.0, "high": 5.0, "shape": [4]},
            "action_space": {"type": "Discrete", "n": 2},
            "input_": "policy_server",
            "metrics_num_episodes_for_smoothing": 20,
            "train_batch_size": 1024,
            "sgd_minibatch_size": 256,
            "num_sgd_iter": 10,
            "lr": 0.0003,  # so that it has not learned all before the head is killed
            "gamma": 0.98,
            "lambda_": 0.9,
            "kl_coeff": 0.0,
            "vf_clip_param": None,
            "model": {"fcnet_hiddens": [64, 64]},
            "seed": 1,
        },
        "externalInput": {
            "tokenSecretRef": {"name": "game-token"},
            "from": [{"namespaceSelector": {"matchLabels": {"team": team}}}],
        },
        "stop": {"episode_reward_mean": GOAL},
        "checkpoint": {"frequency": 5, "storage": {"persistentVolumeClaim": {"claimName": claim}}},
        "head": {"resources": {"requests": {"cpu": "50m", "memory": "300Mi"}}},
    }
    return {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": {"name": "game"}, "spec": spec}


def pod(name: str, image: str, program: str, *arguments: str, address: str = "") -> dict[str, Any]:
    token = {"name": "REEF_POLICY_TOKEN", "valueFrom": {"secretKeyRef": {"name": "game-token", "key": "token"}}}
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", program, *arguments],
        "env": [{"name": "ADDRESS", "value": address}, token] if address else [],
    }
    spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def players(cluster: Cluster) -> Iterator[str]:
    """A namespace of applications."""
    with cluster.namespace("players") as name:
        cluster.kubectl("label", "namespace", name, f"team={name}")
        yield name


def test_an_application_of_another_namespace_plays_and_survives_the_head(
    reef: Installation, own_cluster: OwnCluster, volume: str, namespace: str, players: str
) -> None:
    """The token comes late, the head is killed in the middle, and the job reaches its reward."""
    trainer, address = own_cluster.image("trainer"), f"http://game-policy.{namespace}:9900"
    own_cluster.apply(json.dumps(game(volume, players)), namespace=namespace)  # as YAML "n" would need quotes
    waits = reef.wait("game", lambda now: "tokenSecretRef" in now.get("message", ""), namespace=namespace)
    assert "names Secret game-token with key token. Create it, and the head starts" in waits["message"]
    value = secrets.token_hex(32)
    token = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "game-token"}, "stringData": {"token": value}}
    for place in (namespace, players):
        own_cluster.apply(token, namespace=place)
    check_others_are_kept_out(own_cluster, namespace, players, address)
    own_cluster.apply(pod("player", trainer, PLAY, str(PLAYERS), address=address), namespace=players)

    def iteration(status: dict[str, Any]) -> int:
        return int((status.get("training") or {}).get("iteration", 0))

    before = reef.wait("game", lambda now: iteration(now) >= 8 and bool(now.get("checkpoint")), namespace=namespace)
    (head,) = reef.pods("game", namespace, "head")
    metrics = ("exec", "-n", namespace, head["metadata"]["name"], "--", "python", "-c", READ_METRICS)
    shown = f"reef_training_external_open_episodes {PLAYERS}.0"
    wait_until("all episodes to be open", lambda: shown in own_cluster.kubectl(*metrics))
    kill(head)

    def has_another_head(status: dict[str, Any]) -> bool:
        replaced = status["attempts"] == before["attempts"] + 1
        return replaced and status["phase"] in ("Running", "Succeeded") and iteration(status) > 8

    again = reef.wait("game", has_another_head, namespace=namespace)
    assert reef.resumed("game", namespace) >= before["checkpoint"]["iteration"]
    end = reef.wait_for_phase("game", "Succeeded", "Failed", namespace=namespace)
    assert (end["phase"], end["attempts"]) == ("Succeeded", again["attempts"]), end["message"]
    assert end["training"]["rewardMean"] >= GOAL
    log = own_cluster.kubectl("logs", "player", "-n", players)
    assert "lost: policy server" in log and "Traceback" not in log
    assert own_cluster.get("pod", "player", namespace=players)["status"]["phase"] == "Running"
    logs = [
        own_cluster.kubectl("logs", "-n", namespace, each["metadata"]["name"]) for each in reef.pods("game", namespace)
    ]
    assert not any(value in text for text in [*logs, reef.log(), log, str(end)])

    own_cluster.kubectl("delete", "rltrainingjob", "game", "-n", namespace)
    left = ("get", "services,networkpolicies", "-n", namespace, "-o", "name")
    wait_until("what was made for applications to go", lambda: not own_cluster.kubectl(*left).strip())


def test_an_ingress_leads_to_the_job_with_the_rights_that_the_chart_gives(
    reef: Installation, cluster: Cluster, namespace: str, without_operator: Any
) -> None:
    """It comes and goes with the job; there is no controller here that would act on it."""
    without_operator()
    controller = {"namespaceSelector": {"matchLabels": {"team": "network"}}}
    size = {"example.com/size": "16m"}
    ingress = {"enabled": True, "className": "outside", "annotations": size, "from": [controller]}
    with cluster.namespace("operator") as own:
        second = Installation(cluster, own, "second")
        second.install(
            watch={"allNamespaces": False, "namespaces": [namespace]}, crds={"install": False}, ingress=ingress
        )
        job = game("results", "nobody")
        asked = {"host": "game.example.com", "tlsSecretName": "game-tls"}
        job["spec"] |= {"externalInput": {"tokenSecretRef": {"name": "game-token"}, "ingress": asked}, "checkpoint": {}}
        cluster.apply(json.dumps(job), namespace=namespace)
        second.wait_for_phase("game", "Pending", "Provisioning", namespace=namespace)
        group = f"/apis/networking.k8s.io/v1/namespaces/{namespace}"
        made = cluster.api.request("GET", f"{group}/ingresses/game-policy")
        assert made["metadata"]["annotations"] == size
        assert made["spec"]["ingressClassName"] == "outside"
        assert made["spec"]["tls"] == [{"hosts": ["game.example.com"], "secretName": "game-tls"}]
        policy = cluster.api.request("GET", f"{group}/networkpolicies/game")
        assert policy["spec"]["ingress"][-1]["from"] == [controller]
        cluster.kubectl("delete", "rltrainingjob", "game", "-n", namespace)
        left = ("get", "ingresses", "-n", namespace, "-o", "name")
        wait_until("the Ingress to go", lambda: not cluster.kubectl(*left).strip())
        second.uninstall()


def check_others_are_kept_out(cluster: OwnCluster, namespace: str, players: str, address: str) -> None:
    """By the NetworkPolicy where the network enforces it, which that of this cluster does not, and by the token."""
    policy = cluster.api.request("GET", f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies/game")
    port = {"port": 9900, "protocol": "TCP"}
    (applications,) = [rule for rule in policy["spec"]["ingress"] if port in rule.get("ports", [])]
    assert applications["from"] == [{"namespaceSelector": {"matchLabels": {"team": players}}}]
    cluster.apply(pod("stranger", cluster.base_image(), ASK, f"{address}/v1/policy"), namespace=namespace)
    cluster.wait_for_phase("stranger", "Succeeded", namespace=namespace, timeout_s=120)
    assert cluster.kubectl("logs", "stranger", "-n", namespace).strip() in ("401", "not reached")


def test_the_manifest_that_serves_a_policy_is_taken(cluster: Cluster, namespace: str) -> None:
    made = cluster.kubectl("apply", "--dry-run=server", "-n", namespace, "-f", str(EXAMPLES / "serve-policy.yaml"))
    assert made.count("created (server dry run)") == 3
