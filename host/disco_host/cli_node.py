"""`disco-node`: the agent of a Linux node, as a command."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from disco_host.node.address import DEFAULT_PORT
from disco_targets.command import command_parser, run_command, say
from disco_targets.errors import EXIT_OK, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

_EXAMPLES = f"""examples:
  disco-node                                                        # for this user on this machine
  disco-node --listen 192.168.1.7:{DEFAULT_PORT} --token-file ~/disco-token
  disco-node --listen 0.0.0.0 --token-file token --tls-cert node.pem --tls-key node.key --tls-ca ca.pem
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Runs until it is interrupted: exit code 130; 1 failed, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    return run_command("disco-node", lambda errors: _run(options, errors))


def _run(options: argparse.Namespace, errors: Console) -> int:
    # Imported here, where an interrupt is already caught.
    from disco_host.node.address import parse_endpoint
    from disco_host.node.agent import Agent, AgentConfig
    from disco_host.node.auth import load_token, own_token
    from disco_host.node.cache import default_cache
    from disco_host.node.tls import TlsFiles

    tls = (options.tls_cert, options.tls_key, options.tls_ca)
    if any(tls) and not all(tls):
        raise UsageError("--tls-cert, --tls-key and --tls-ca go together: give all of them, or none")
    given = options.token_file is not None
    config = AgentConfig(
        listen=parse_endpoint(options.listen),
        token=load_token(options.token_file) if given else own_token(),
        cache=options.cache or default_cache(),
        token_given=given,
        tls=TlsFiles(*tls) if all(tls) else None,
    )

    def log(text: str) -> None:
        with contextlib.suppress(OSError):  # a full disk or a closed pipe is no reason to leave a job half done
            say(errors, text)

    with Agent(config, log) as agent:
        log(f"disco-node listens at {agent.endpoint}{' with TLS' if config.tls else ''}")
        if options.ready_fd is not None:
            with os.fdopen(options.ready_fd, "w") as ready:
                ready.write(f"{agent.endpoint}\n")
        agent.serve()
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "disco-node",
        "Run this machine's share of a network for disco-run, job after job.",
        _EXAMPLES,
    )
    add = parser.add_argument
    listen = f"where to listen (default 127.0.0.1:{DEFAULT_PORT}, which nobody but this machine can reach); port 0: any"
    add("--listen", default=f"127.0.0.1:{DEFAULT_PORT}", metavar="HOST[:PORT]", help=listen)
    token = "the secret that hosts and other nodes must know too; default: this user's own, for loopback only"
    add("--token-file", type=Path, metavar="FILE", help=token)
    add("--tls-cert", type=Path, metavar="FILE.pem", help="certificate of this node: all its connections use TLS")
    add("--tls-key", type=Path, metavar="FILE.pem", help="its private key")
    add("--tls-ca", type=Path, metavar="FILE.pem", help="who signed the certificates of the other nodes")
    add("--cache", type=Path, metavar="DIR", help="where slices are kept (default ~/.cache/disco-edge/slices)")
    add("--ready-fd", type=int, metavar="N", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
