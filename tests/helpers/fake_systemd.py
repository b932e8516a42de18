"""systemctl, journalctl and loginctl of a node without systemd, as far as disco-flash uses them.

Runs as the program that it is called by; units are processes, their state lies in HOME/systemd.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

HOME = Path(os.environ["HOME"])
STATE = HOME / "systemd"


def alive(unit: str) -> int:
    try:
        pid = int((STATE / unit).read_text())
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError):
        return 0
    return 0 if state == "Z" else pid


def start(unit: str) -> None:
    template, _, instance = unit.removesuffix(".service").partition("@")
    lines = (HOME / ".config/systemd/user" / f"{template}@.service").read_text().splitlines()
    keys = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    keys = {key: value.replace("%h", str(HOME)).replace("%i", instance) for key, value in keys.items()}
    settings = Path(keys["EnvironmentFile"]).read_text().splitlines()
    variables = dict(line.split("=", 1) for line in settings if not line.startswith("#"))
    command = [
        part
        for word in keys["ExecStart"].split()
        for part in (variables[word[1:]].split() if word[0] == "$" else [word])
    ]
    with (STATE / f"{unit}.log").open("w") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=HOME
        )
    (STATE / unit).write_text(str(process.pid))


def main() -> int:
    STATE.mkdir(exist_ok=True)
    program = Path(sys.argv[0]).name
    with (STATE / "calls").open("a") as calls:
        calls.write(f"{program} {' '.join(sys.argv[1:])}\n")
    words = [word for word in sys.argv[1:] if word not in ("--user", "-q")]
    unit = next((word for word in words if word.endswith(".service")), "")
    if program == "journalctl":
        sys.stdout.write((STATE / f"{unit}.log").read_text())
    elif words[0] == "show":
        print(alive(unit))  # noqa: T201
    elif words[0] == "is-failed":
        return int(bool(alive(unit)))
    elif words[0] in ("disable", "restart"):
        if pid := alive(unit):
            os.kill(pid, signal.SIGTERM)
            while alive(unit):
                pass
        if words[0] == "restart":
            start(unit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
