"""Draw the chart's dashboards for docs/monitoring.md, without Grafana, from what a real Prometheus answers.

A test cluster of its own is started, Reef is installed by its chart, jobs run, and pods, a container and the API server
fail. Every panel is drawn in its place with its own expression over these minutes. Everything is removed in the end.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from installation import ROOT, Installation
from kube.cluster import used_cluster
from kube.progress import ClusterError, cache_folder, say
from prometheus import DASHBOARDS, Prometheus, filled, scraping

from pictures import story
from pictures.answers import Answers
from pictures.drawing import drawn

SCRAPE_S, RATE_S = 2, 20
VARIABLES = {
    "fleet": {"namespace": ".*"},
    "job": {"namespace": story.NAMESPACE, "job_name": story.SHOWN},
    "operator": {},
}
CHOSEN = {
    "fleet": {"Namespace": "All"},
    "job": {"Namespace": story.NAMESPACE, "Job": story.SHOWN},
    "operator": {},
}
IN_TURNS = "PPO samples and learns in turns"
STEPPED = "it steps an environment"
RIGHTLY_EMPTY = {
    "job": {
        "GPU use": "no GPU was there",
        "Age of the weights that sample": IN_TURNS,
        "Batches before the learner": IN_TURNS,
        "Replays of each step": IN_TURNS,
        "Replay memory": IN_TURNS,
        "Open episodes": STEPPED,
        "Steps before the learner": STEPPED,
        "Age of the weights that act": STEPPED,
        "Refused requests": STEPPED,
    }
}


def main() -> int:
    """Draw all dashboards; 1 if there was no cluster, or a panel is empty that should not be."""
    args = parser().parse_args()
    try:
        kept = args.answers or played(args.minutes * 60)
    except ClusterError as problem:
        print(problem, file=sys.stderr)
        return 1
    args.out.mkdir(parents=True, exist_ok=True)
    wrong = []
    for name, document in json.loads(kept.read_text()).items():
        board, answers, empty = DASHBOARDS[name], Answers(**document), RIGHTLY_EMPTY.get(name, {})
        path = args.out / f"dashboard-{name}.png"
        drawn(board, answers, empty).save(path)
        say(f"{path}: {path.stat().st_size / 1024:.0f} KiB")
        asking = [panel for panel in board["panels"] if panel["type"] != "row"]
        bare = {panel["title"] for panel in asking if not answers.lines(panel)}
        wrong += [f"{name}: {title} shows nothing, and should" for title in sorted(bare - set(empty))]
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m pictures", description=__doc__)
    parser.add_argument("--minutes", type=float, default=6, help="for which the jobs run, at least (6)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images", help="folder of the pictures")
    parser.add_argument("--answers", type=Path, help="draw what an earlier run kept in this file, and start nothing")
    return parser


def played(seconds: float) -> Path:
    """Let everything happen, and keep what Prometheus has seen of it: the file's path."""
    kept = cache_folder() / "pictures.json"
    name = os.environ.get("REEF_CLUSTER") or "pictures"
    with (
        used_cluster(name) as cluster,
        tempfile.TemporaryDirectory() as folder,
        scraping(cluster, Path(folder), interval=f"{SCRAPE_S}s") as prometheus,
    ):
        reef = Installation(cluster)
        reef.install()
        try:
            with story.namespace(cluster):
                start = time.time()
                story.happen(reef, cluster, seconds)
                end = time.time()
                found = {name: asked(prometheus, name, start, end) for name in DASHBOARDS}
        finally:
            reef.uninstall()
    kept.write_text(json.dumps({name: answers.to_json() for name, answers in found.items()}))
    say(f"What Prometheus answered is in {kept}; --answers {kept} draws it again")
    return kept


def asked(prometheus: Prometheus, name: str, start: float, end: float) -> Answers:
    """Ask everything that a dashboard asks: of the end, or of all times since the start."""
    variables = {"__rate_interval": f"{RATE_S}s", **VARIABLES[name]}
    found = {}
    for panel in DASHBOARDS[name]["panels"]:
        for target in panel.get("targets", []):
            times = {"start": str(start), "end": str(end), "step": str(SCRAPE_S)}
            moment = {"time": str(end)} if target.get("instant") else times
            expression = filled(target["expr"], variables)
            found[f"{panel['id']} {target['refId']}"] = prometheus.query(expression, **moment)
    return Answers(start, end, SCRAPE_S, CHOSEN[name], found)


if __name__ == "__main__":
    sys.exit(main())
