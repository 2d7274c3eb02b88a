"""`reef serve CHECKPOINT`: answers requests for actions over HTTP."""

from __future__ import annotations

import argparse
import socket

from reef.errors import EXIT_OK, ConfigError

HOST, PORT = "127.0.0.1", 8000
CONNECTIONS, REQUEST_BYTES, QUEUED = 500, 16 * 2**20, 1000


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], verbosity: argparse.ArgumentParser
) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("serve", parents=[verbosity], help="answer requests for actions over HTTP")
    parser.add_argument("checkpoint", help="checkpoint (a folder or a URI), or a run's folder: its newest")
    parser.add_argument("--host", default=HOST, metavar="ADDRESS", help=f"where to listen (default: {HOST})")
    parser.add_argument(
        "--port", type=_port, default=PORT, metavar="N", help=f"port; 0 is any free one, which is printed ({PORT})"
    )
    parser.add_argument("--policy", metavar="ID", help="policy of the checkpoint, where it has several")
    parser.add_argument(
        "--explore",
        action=argparse.BooleanOptionalAction,
        help="draw actions as in training instead of taking the best one; default: the checkpoint's evaluation_config, "
        "else the best one",
    )
    parser.add_argument("--token-env", metavar="NAME", help="environment variable that holds the token of clients")
    parser.add_argument("--token-file", metavar="FILE", help="or the file that does")
    parser.add_argument(
        "--max-connections", type=_count, default=CONNECTIONS, metavar="N", help=f"at the same time ({CONNECTIONS})"
    )
    parser.add_argument(
        "--max-request-bytes", type=_count, default=REQUEST_BYTES, metavar="N", help=f"of a body ({REQUEST_BYTES})"
    )
    parser.add_argument(
        "--max-queued", type=_count, default=QUEUED, metavar="N", help=f"observations that may wait ({QUEUED})"
    )
    parser.add_argument(
        "--play", action="store_true", help="also show the policy in its environment, on a page for browsers: /play"
    )
    parser.set_defaults(action=_command)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from 0 to 65535")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number above 0")
    return int(text)


def _command(args: argparse.Namespace) -> int:
    import asyncio
    import warnings

    import torch

    from reef.external.listening.connections import allow_connections, is_loopback
    from reef.external.listening.token import read_token
    from reef.serving.finished import FinishedPolicy
    from reef.serving.server import FinishedPolicyServer, ServingLimits

    token = read_token(args.token_env, args.token_file)
    if args.play and token is None and not is_loopback(args.host):
        raise ConfigError(
            f"--play --host {args.host}: without a token everybody who reaches it could run the environment. Give "
            f"--token-env or --token-file, or --host {HOST}."
        )
    allow_connections(args.max_connections, f"--max-connections {args.max_connections}")
    with _listening(args.host, args.port) as sock:
        if token is None and not is_loopback(args.host):
            warnings.warn(
                f"--host {args.host}: there is no token, so that everybody who reaches it gets actions. Give "
                f"--token-env or --token-file, or --host {HOST}.",
                stacklevel=1,
            )
        policy = FinishedPolicy(args.checkpoint, args.policy, args.explore)
        torch.set_num_threads(policy.policy.config.torch_threads_per_worker)
        limits = ServingLimits(args.max_connections, args.max_request_bytes, args.max_queued)
        host, port = (f"[{args.host}]" if ":" in args.host else args.host), sock.getsockname()[1]
        said = f"policy {policy.policy_id} of {args.checkpoint} at http://{host}:{port}"
        if args.play:
            said += f"\nit plays at http://{host}:{port}/play"
        server = FinishedPolicyServer(policy, limits, token, play=args.play)
        asyncio.run(server.run(sock, lambda: print(said, flush=True)))
    return EXIT_OK


def _listening(host: str, port: int) -> socket.socket:
    from reef.external.listening.connections import listening

    try:
        return listening(host, port)
    except OSError as error:
        reason = str(error.strerror or error).partition(" (")[0]
        raise ConfigError(
            f"--host {host} --port {port}: cannot listen there: {reason}. Give another, or --port 0 for any free one."
        ) from error
