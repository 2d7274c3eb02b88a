"""`reef plot RUN ...`: learning curves of one or many runs in one picture."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], verbosity: argparse.ArgumentParser
) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("plot", parents=[verbosity], help="draw the learning curves of runs in one picture")
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="folder of a run, a sweep or several runs; runs that differ in their seed alone become one line",
    )
    parser.add_argument(
        "--out", "-o", type=Path, default=Path("curves.png"), metavar="FILE", help=".png (default), .svg, .pdf or .html"
    )
    parser.add_argument(
        "--field", default="episode_reward_mean", metavar="FIELD", help="result field (default episode_reward_mean)"
    )
    parser.add_argument(
        "--over", default="timesteps_total", metavar="FIELD", help="field of the axis (default timesteps_total)"
    )
    parser.set_defaults(action=_command)


def _command(args: argparse.Namespace) -> int:
    from reef.run.reporters.curves import curves_of, draw_curves, runs_in

    folders = [run for folder in args.runs for run in runs_in(folder.expanduser())]
    curves = curves_of(folders, args.over, args.field)
    draw_curves(curves, args.out, args.over, args.field)
    for curve in curves:
        steps, mean, low, high = curve.spread()
        spread = f", {low[-1]:.6g} to {high[-1]:.6g}" if len(curve.runs) > 1 else ""
        print(f"{curve.name}: {args.field} {mean[-1]:.6g}{spread} at {args.over} {steps[-1]:.0f}")
    print(f"Picture  {args.out}")
    return 0
