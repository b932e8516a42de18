"""Fuzzes every target for a share of the time, from another seed each time: `campaign.py SECONDS`.

What is found goes to build/fuzz: bytes that a target does not survive, and those that are new to the corpus.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from fuzz.node_messages import abuse  # noqa: E402
from fuzz.targets import TARGETS  # noqa: E402
from helpers.c_build import SANITIZERS, compile_c  # noqa: E402
from helpers.link_ends import SOURCES, STREAM_LINES, STREAM_SOURCES  # noqa: E402
from helpers.rig_build import build_library, build_mesh  # noqa: E402
from helpers.rig_network import Network  # noqa: E402

BUILD = HERE.parents[1] / "build" / "fuzz"
TURNS = 100_000
SESSIONS = 1000


def python_target(target: str, seconds: float, seed: int) -> str:
    """Under atheris; what was done."""
    found = BUILD / "corpus" / target
    found.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(HERE / "harness.py"), target, f"-max_total_time={max(1, round(seconds))}"]
    command += [f"-seed={seed}", "-timeout=20", f"-artifact_prefix={BUILD}/{target}-"]
    done = subprocess.run([*command, str(found), str(HERE / "corpus" / target)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{target}: seed {seed}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    last = re.findall(r"#(\d+)\s+DONE\s+cov: (\d+) ft: (\d+) corp: (\d+)", done.stderr + done.stdout)[-1]
    return "{} inputs, {} edges, {} features, {} kept".format(*last)


def link(seconds: float, seed: int, *, stream: bool) -> str:
    """A link of the C runtime under sanitizers."""
    name, sources, flags = ("stream_link", STREAM_SOURCES, [STREAM_LINES]) if stream else ("link", SOURCES, [])
    source = HERE.parent / "c" / f"{name}_fuzz.c"
    program = compile_c("gcc", [source, *sources], BUILD / name, ["-O1", *SANITIZERS, *flags])
    end = time.monotonic() + seconds
    turns = 0
    while time.monotonic() < end:
        done = subprocess.run([program, str(seed + turns), str(TURNS)], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{name}: seed {seed + turns}\n{done.stderr}")
        turns += TURNS
    return f"{turns} turns"


def node(seconds: float, seed: int) -> str:
    """A node of the C runtime under sanitizers."""
    BUILD.mkdir(parents=True, exist_ok=True)
    program = build_mesh(Network(2), BUILD, build_library(BUILD / "runtime"))[0]
    end = time.monotonic() + seconds
    sessions = messages = 0
    while time.monotonic() < end:
        messages += abuse(program, seed + sessions, SESSIONS)
        sessions += SESSIONS
    return f"{sessions} sessions, {messages} messages"


def main() -> None:
    """All of them, one after the other."""
    share = float(sys.argv[1]) / (len(TARGETS) + 3)
    seed = random.SystemRandom().randrange(1, 2**31)
    BUILD.mkdir(parents=True, exist_ok=True)
    for target in TARGETS:
        say(f"{target}: {python_target(target, share, seed)}")
    say(f"link.c: {link(share, seed, stream=False)}")
    say(f"stream_link.c: {link(share, seed, stream=True)}")
    say(f"node.c: {node(share, seed)}")


def say(text: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
