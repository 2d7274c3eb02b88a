"""`reef export CHECKPOINT --onnx FILE`: writes a policy as a file that runs without Reef."""

from __future__ import annotations

import argparse

from reef.errors import EXIT_OK, ConfigError

FORMS = {
    "onnx": "observations to actions, for ONNX Runtime and others (needs pip install 'reef[onnx]')",
    "torchscript": "the same, for torch.jit.load",
    "safetensors": "the parameters by name, a state_dict",
}


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], verbosity: argparse.ArgumentParser
) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "export", parents=[verbosity], help="write the policy of a checkpoint as a file that runs without Reef"
    )
    parser.add_argument("checkpoint", help="checkpoint (a folder or a URI), or a run's folder: its newest")
    for form, about in FORMS.items():
        parser.add_argument(f"--{form}", metavar="FILE", help=about)
    parser.add_argument("--policy", metavar="ID", help="policy of the checkpoint, where it has several")
    parser.set_defaults(action=_command)


def _command(args: argparse.Namespace) -> int:
    files = {form: file for form in FORMS if (file := vars(args)[form]) is not None}
    if not files:
        raise ConfigError(f"give a file to write, with {' or '.join(f'--{form} FILE' for form in FORMS)}.")
    from reef.serving.export import export_policy
    from reef.serving.finished import FinishedPolicy

    policy = FinishedPolicy(args.checkpoint, args.policy, explore=False)
    for form, file in files.items():
        export_policy(policy, file, form)
        print(f"policy {policy.policy_id} of {args.checkpoint} written to {file}")
    return EXIT_OK
