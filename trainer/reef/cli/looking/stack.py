"""`reef stack RUN` and `reef top RUN`: what the processes of a running training are doing."""

from __future__ import annotations

import argparse

RUN = "folder of a run that trains on this machine, or the number of its process"


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], verbosity: argparse.ArgumentParser
) -> None:
    """Add both commands to the command line."""
    for name, action, help_text in (
        ("stack", _stack, "print the Python stacks of a running training and its workers (needs py-spy)"),
        ("top", _top, "watch where a running training and its workers spend their time (needs py-spy)"),
    ):
        parser = commands.add_parser(name, parents=[verbosity], help=help_text)
        parser.add_argument("run", metavar="RUN", help=RUN)
        parser.set_defaults(action=action)


def _stack(args: argparse.Namespace) -> int:
    from reef.run.process.running import driver_of, processes_of, stack_of

    driver = driver_of(args.run)
    for process in processes_of(driver):
        stack = stack_of(process)
        if stack is not None:
            print(f"{'driver' if process == driver else 'worker'}: {stack}")
    return 0


def _top(args: argparse.Namespace) -> int:
    from reef.run.process.running import driver_of, watch

    return watch(driver_of(args.run))
