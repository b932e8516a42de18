"""A Linux node over the system's ssh and scp: they know the user's keys, hosts and jumps, and ask nothing."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from disco_targets.children import missing_program, run_child
from disco_targets.errors import DiscoError
from disco_targets.text import printable, printable_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DESTINATION = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""USER@HOST or HOST, which never looks like an option; a port or a jump goes into ssh's own configuration."""
CONNECT_S = 10
ANSWER_S, COPY_S, INSTALL_S = 60.0, 300.0, 1200.0
_OPTIONS = ("BatchMode=yes", f"ConnectTimeout={CONNECT_S}", "ServerAliveInterval=5", "ServerAliveCountMax=3")
_LOADER = (
    "import json, sys; told = json.load(sys.stdin); sys.argv[1:] = [json.dumps(told['request'])]; "
    "exec(compile(told['script'], 'disco-flash', 'exec'))"
)
"""Script and request come in by the standard input: nobody else there sees them in the list of processes."""
_SSH_FAILED, _NOT_FOUND = 255, 127
_WORDS = 4
_REASONS = {
    "Host key verification failed": "its host key is not known here or has changed: log in once by hand, compare the "
    "fingerprint, then run this again: ssh {0}",
    "Permission denied": "the login is refused, and passwords are not asked for: give it your key with ssh-copy-id {0}",
    "Could not resolve hostname": "the name is unknown: check the key ssh in the cluster file",
    "Connection refused": "no ssh server answers there: enable it on the node (sudo raspi-config, or: sudo systemctl "
    "enable --now ssh)",
    "timed out": "it does not answer: is it switched on and in this network?",
    "No route to host": "it cannot be reached: is it switched on and in this network?",
}


@dataclass(frozen=True)
class Remote:
    """A machine that ssh reaches."""

    destination: str
    """Matches DESTINATION."""
    config: Path | None = None
    """ssh's configuration file; None: the user's own."""
    python: str = "python3"
    """The interpreter to use there."""

    def ask(self, request: dict[str, Any], timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """Runs `on_node` there; returns its answer.

        Raises:
            DiscoError: ssh is missing, the machine cannot be reached or refuses, has no such Python, or cannot do it.
        """
        script = (files("disco_host.deploy") / "on_node.py").read_text(encoding="utf-8")
        with tempfile.TemporaryFile() as told:
            told.write(json.dumps({"script": script, "request": request}).encode())
            told.seek(0)
            command = shlex.join([self.python, "-c", _LOADER])
            done = self._run("ssh", ["-T", "--", self.destination, command], timeout_s, stdin=told)
        if done.returncode == _NOT_FOUND:
            raise DiscoError(
                f"{self.destination}: there is no {self.python} there: sudo apt install python3 python3-venv, or name "
                "another one with --python"
            )
        lines = done.stdout.decode(errors="replace").strip().splitlines()
        try:
            answer = printable_json(json.loads(lines[-1] if lines else ""))
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise DiscoError(
                f"{self.destination}: {self.python} there does not do what it is told: {_last(done.stderr)}"
            )
        if "error" in answer:
            raise DiscoError(f"{self.destination}: {answer['error']}")
        return answer

    def copy(self, sources: Sequence[Path], folder: str) -> None:
        """Copies files into a folder there.

        Raises:
            DiscoError: As `ask`, or the disk there is full.
        """
        local = [str(source.resolve()) for source in sources]  # absolute: neither an option nor HOST:PATH
        done = self._run("scp", ["-q", "--", *local, f"{self.destination}:{folder}/"], COPY_S)
        if done.returncode:
            raise DiscoError(f"{self.destination}: files cannot be copied there: {_last(done.stderr)}")

    def _run(
        self, program: str, arguments: Sequence[str], timeout_s: float, **options: Any
    ) -> subprocess.CompletedProcess[bytes]:
        if shutil.which(program) is None:
            raise missing_program(program, "openssh-client", "reach Linux nodes")
        command = [program, *(["-F", str(self.config)] if self.config is not None else [])]
        for option in _OPTIONS:
            command += ["-o", option]
        try:
            done = run_child(
                [*command, *arguments], timeout_s, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
            )
        except subprocess.TimeoutExpired as error:
            raise DiscoError(
                f"{self.destination}: {program} was not done after {timeout_s:g} s: is the machine or its network that "
                "slow? Run this again"
            ) from error
        words = done.stderr.decode(errors="replace")
        reason = next((text for sign, text in _REASONS.items() if done.returncode and sign in words), None)
        if done.returncode == _SSH_FAILED or (program == "scp" and reason is not None):
            why = reason.format(self.destination) if reason is not None else "ssh cannot connect"
            raise DiscoError(f"{self.destination}: {why} ({_last(done.stderr)})")
        return done


def _last(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return printable(" | ".join(line.strip() for line in lines[-_WORDS:])) or "without a word"
