"""What disco-flash runs on a Linux node. It comes over ssh to the node's own python3: nothing but the standard library.

Its argument is a JSON object, `action` one of ACTIONS; the last line it prints is the answer, or {"error": text}.

Below the home folder: .local/share/disco-edge/NAME is a virtual environment per wheel, `current` the one in use;
.config/disco-edge holds the token and what each agent is started with; .local/state/disco-edge pid files and logs.
Agents are told apart by their port.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOME = Path.home()
SHARE = HOME / ".local" / "share" / "disco-edge"
CONFIG = HOME / ".config" / "disco-edge"
STATE = HOME / ".local" / "state" / "disco-edge"
UNITS = HOME / ".config" / "systemd" / "user"
UNIT = "disco-node@.service"
CURRENT = SHARE / "current"
COMPLETE = "disco-complete"
"""In an environment that was installed to its end."""
TOKEN = CONFIG / "token-flashed"
TLS = CONFIG / "tls"
TLS_FILES = {"--tls-cert": "node.pem", "--tls-key": "node.key", "--tls-ca": "ca.pem"}
PYTHONS = ((3, 10), (3, 13))
"""From the first on, before the second."""
INSTALL_S, COMMAND_S, START_S, STOP_S = 900.0, 60.0, 20.0, 5.0
PIP_OPTIONS = ("-q", "--disable-pip-version-check", "--no-input", "--only-binary=:all:")
"""Binaries alone: a node needs no compiler."""
LEFT_BEHIND_S = 3600.0
WORDS = 6
"""Last lines of a program's output that an error quotes."""


class Refused(Exception):  # noqa: N818
    """What cannot be done, and what to do about it."""


def look(request: dict[str, Any]) -> dict[str, Any]:
    """What is there: wheel and token by their hashes, and whether the agent runs."""
    _check_machine()
    return {"wheel": _installed(), "token": _hash_of(TOKEN), "running": _running(request["port"])}


def stage(request: dict[str, Any]) -> dict[str, Any]:
    """A new folder that only this user may read, for the files that are copied next."""
    del request
    SHARE.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in SHARE.glob(".flash-*"):  # of a call whose connection broke
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > LEFT_BEHIND_S:
                shutil.rmtree(old)
    return {"folder": tempfile.mkdtemp(prefix=".flash-", dir=SHARE)}


def flash(request: dict[str, Any]) -> dict[str, Any]:
    """Installs what was copied, then starts the agent unless it runs already as it should."""
    _check_machine()
    port, folder = request["port"], request["folder"]
    for place in (SHARE, CONFIG, STATE):
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (SHARE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            installed = _installed() != request["wheel"]
            if installed:
                _install(Path(folder) / request["file"], request["wheel"])
            if _hash_of(TOKEN) != request["token"]:
                _take_token(Path(folder) / "token")
            started = _start(port, request)
        finally:
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
    return {"installed": installed, **started}


def stop(request: dict[str, Any]) -> dict[str, Any]:
    """Ends the agent, and it does not come back; what is installed stays."""
    port = request["port"]
    running = _running(port)
    if _has_systemd() and (UNITS / UNIT).exists():
        _run(["systemctl", "--user", "disable", "--now", _unit(port)])
    _stop_process(port)
    _settings(port).unlink(missing_ok=True)
    return {"stopped": bool(running)}


ACTIONS = {action.__name__: action for action in (look, stage, flash, stop)}


def _check_machine() -> None:
    if not PYTHONS[0] <= sys.version_info[:2] < PYTHONS[1]:
        known = ".".join(map(str, PYTHONS[0])), ".".join(map(str, PYTHONS[1]))
        raise Refused(
            f"{sys.executable} is Python {sys.version.split()[0]}, disco-edge needs {known[0]} or newer, before "
            f"{known[1]}: install one there and name it with --python"
        )
    if sys.maxsize < 2**32:
        raise Refused("its Python is a 32-bit program: install a 64-bit system there")


# ---- what is installed


def _installed() -> str:
    """Hash of the wheel in use; empty when there is none."""
    try:
        return (CURRENT / COMPLETE).read_text(encoding="ascii")
    except OSError:
        return ""


def _install(wheel: Path, digest: str) -> None:
    if _hash_of(wheel) != digest:
        raise Refused(f"{wheel.name} did not arrive whole: run disco-flash again")
    in_use = CURRENT.resolve()
    for old in SHARE.glob("env-*"):  # of before the last change: whatever still runs is the last one
        if old != in_use:
            shutil.rmtree(old, ignore_errors=True)
    environment = SHARE / f"env-{digest[:16]}"
    shutil.rmtree(environment, ignore_errors=True)
    python = str(environment / "bin" / "python")
    try:
        _make_environment(environment)
        _must(
            [python, "-m", "pip", "install", *PIP_OPTIONS, str(wheel)],
            "pip cannot install disco-edge (does this machine reach its package index?)",
        )
        _must([python, "-m", "disco_host.cli_node", "--help"], "disco-node does not start after its installation")
    except BaseException:
        shutil.rmtree(environment, ignore_errors=True)
        raise
    (environment / COMPLETE).write_text(digest, encoding="ascii")
    link = SHARE / ".current"
    link.unlink(missing_ok=True)
    link.symlink_to(environment.name)
    link.replace(CURRENT)


def _make_environment(environment: Path) -> None:
    code, output = _run([sys.executable, "-m", "venv", str(environment)], INSTALL_S)
    if code:
        if "ensurepip" in output or "No module named venv" in output:
            raise Refused("python3-venv is not installed there: sudo apt install python3-venv")
        raise Refused(f"no virtual environment can be made there: {_last(output)}")


def _take_token(copied: Path) -> None:
    copied.chmod(0o600)
    copied.replace(TOKEN)


def _hash_of(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


# ---- the agent


def _start(port: int, request: dict[str, Any]) -> dict[str, Any]:
    options = _options(request)
    settings = _settings(port)
    stamp = f"# written by disco-flash; wheel {request['wheel']}, token {request['token']}"
    wanted = f"{stamp}\nDISCO_NODE={' '.join(options)}\n"
    systemd = _has_systemd()
    if _running(port) and settings.is_file() and settings.read_text(encoding="utf-8") == wanted:
        return {"started": False, "systemd": systemd, "note": ""}
    stop({"port": port})
    _check_port(request["listen"], port)
    settings.write_text(wanted, encoding="utf-8")
    note = _start_unit(port, request["unit"]) if systemd else _start_process(port, options)
    _await_start(request["listen"], port)
    return {"started": True, "systemd": systemd, "note": note}


def _settings(port: int) -> Path:
    return CONFIG / f"node-{port}.env"


def _options(request: dict[str, Any]) -> list[str]:
    """Of disco-node, which is started in the home folder: no path of a user in them, so no blanks."""
    options = ["--listen", request["address"], "--token-file", str(TOKEN.relative_to(HOME))]
    if request["tls"]:
        for option, name in TLS_FILES.items():
            if not (TLS / name).is_file():
                raise Refused(f"~/{(TLS / name).relative_to(HOME)} does not exist there, which TLS needs: put it there")
            options += [option, str((TLS / name).relative_to(HOME))]
    return options


def _check_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise Refused(
                f"port {port} of {host} cannot be had there ({error.strerror}): end the program that holds it "
                f"(ss -ltnp shows it), or write another port into the cluster file"
            ) from error


def _await_start(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        with socket.socket(family, socket.SOCK_STREAM) as line:
            line.settimeout(1.0)
            if line.connect_ex((host, port)) == 0:
                return
        if not _running(port, restarting=True):
            break
        time.sleep(0.1)
    words = _last(_log(port))
    stop({"port": port})
    raise Refused(f"disco-node does not start there: {words}")


def _log(port: int) -> str:
    if _has_systemd():
        return _run(["journalctl", "--user", "-u", _unit(port), "-n", str(WORDS), "-o", "cat", "--no-pager"])[1]
    try:
        return _log_file(port).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _running(port: int, restarting: bool = False) -> int:
    """Process number of the agent, 0 when it does not run."""
    if _has_systemd():
        _, output = _run(["systemctl", "--user", "show", "-p", "MainPID", "--value", _unit(port)])
        pid = int(output) if output.strip().isdecimal() else 0
        if pid or (restarting and _run(["systemctl", "--user", "is-failed", "-q", _unit(port)])[0]):
            return pid or -1
    with _process(port) as (pid, _):
        return pid


# ---- as a systemd user unit


def _has_systemd() -> bool:
    """Whether a systemd serves this user."""
    return shutil.which("systemctl") is not None and _run(["systemctl", "--user", "show-environment"])[0] == 0


def _unit(port: int) -> str:
    return UNIT.replace("@", f"@{port}")


def _start_unit(port: int, unit: str) -> str:
    UNITS.mkdir(parents=True, exist_ok=True)
    (UNITS / UNIT).write_text(unit, encoding="utf-8")
    _must(["systemctl", "--user", "daemon-reload"], "systemd does not take the unit")
    _must(["systemctl", "--user", "enable", "-q", _unit(port)], "systemd does not take the unit")
    _must(["systemctl", "--user", "restart", _unit(port)], "disco-node does not start there")
    if _run(["loginctl", "enable-linger"])[0]:
        return (
            "it ends with the last login of this user and does not start with the machine: "
            "sudo loginctl enable-linger $USER"
        )
    return ""


# ---- as a process of its own, where there is no systemd


def _start_process(port: int, options: list[str]) -> str:
    command = [str(CURRENT / "bin" / "python"), "-m", "disco_host.cli_node", *options]
    with _log_file(port).open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=HOME
        )
    _pid_file(port).write_text(f"{process.pid} {_birth(process.pid)}", encoding="ascii")
    return "no systemd serves this user: it does not start with the machine, run disco-flash again after a restart"


def _pid_file(port: int) -> Path:
    return STATE / f"node-{port}.pid"


def _log_file(port: int) -> Path:
    return STATE / f"node-{port}.log"


def _birth(pid: int) -> str:
    """When a process was started, so that another one with its number is not taken for it; empty when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


@contextlib.contextmanager
def _process(port: int) -> Iterator[tuple[int, int]]:
    """Number and descriptor of the agent that the pid file names; (0, -1) when it does not run."""
    try:
        pid, birth = _pid_file(port).read_text(encoding="ascii").split()
        descriptor = os.pidfd_open(int(pid))
    except (OSError, ValueError):
        yield 0, -1
        return
    try:
        yield (int(pid), descriptor) if birth == _birth(int(pid)) else (0, -1)
    finally:
        os.close(descriptor)


def _stop_process(port: int) -> None:
    with _process(port) as (pid, descriptor):
        for number in (signal.SIGTERM, signal.SIGKILL) if pid else ():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)
            if select.select([descriptor], [], [], STOP_S)[0]:
                break
    _pid_file(port).unlink(missing_ok=True)


# ---- programs


def _run(command: Sequence[str], timeout_s: float = COMMAND_S) -> tuple[int, str]:
    """Exit code and output of a program."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return 124, f"{command[0]} was not done after {timeout_s:g} s"
    except OSError as error:
        return 127, f"{command[0]}: {error.strerror}"
    return done.returncode, done.stdout.decode(errors="replace")


def _must(command: Sequence[str], otherwise: str) -> None:
    code, output = _run(command, INSTALL_S)
    if code:
        raise Refused(f"{otherwise}: {_last(output) or f'exit code {code}'}")


def _last(output: str) -> str:
    return " | ".join(line.strip() for line in output.strip().splitlines()[-WORDS:])


def main() -> int:
    """Does what the request says."""
    os.umask(0o077)
    request = json.loads(sys.argv[1])
    try:
        answer = ACTIONS[request["action"]](request)
    except Refused as error:
        answer = {"error": str(error)}
    except OSError as error:
        answer = {"error": f"{error.filename or 'the system'}: {error.strerror or error}"}
    sys.stdout.write(f"\n{json.dumps(answer)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
