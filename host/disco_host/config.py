"""What `disco-run` is asked to do. Imports little, so that the command line answers at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from disco_firmware.reference import REFERENCE
from disco_host.lines import PeerLine, direct_line

EMULATED = "emulated"
POSIX = "posix"
LINUX = "linux"
DEFAULT_DEADLINE_S = 30.0
DEFAULT_EXCHANGE_DEADLINE_S = 1.5
"""Of Linux nodes' waits for each other, where there are no other boards."""
MIXED_EXCHANGE_DEADLINE_S = 10.0
"""The same with emulated boards among them, which may take seconds for a stage."""
INSTRUCTIONS = "instructions"
CYCLES_ESTIMATE = "cycles-estimate"


@dataclass(frozen=True)
class RunConfig:
    """What to run and how."""

    bundle: Path
    boards: str
    """"emulated", "posix", "linux" (agents that are started here) or the path of a cluster file."""
    inputs: Path | None = None
    """.npy, float32 or int8, channels last; None: the bundle's own self-check inputs."""
    labels: Path | None = None
    """.npy with the right class of each input."""
    limit: int | None = None
    """Only so many of the inputs, from the first on."""
    repeat: int = 1
    """How often all inputs are run and measured."""
    warmup: int = 1
    """Inferences before that: checked, not measured."""
    check_tensors: bool = False
    """Compare every op's output channels on every node as well."""
    deadline_s: float = DEFAULT_DEADLINE_S
    """Of every single wait."""
    logs: Path | None = None
    """Folder that keeps what boards on this PC print."""
    peer_line: PeerLine = direct_line
    """Makes the lines between boards on this PC."""
    project: Path | None = None
    """Boards and links as numbers: the run's counts are projected onto them."""
    count: str = INSTRUCTIONS
    """Of emulated boards: INSTRUCTIONS or CYCLES_ESTIMATE."""
    engine: str | None = None
    """Of Linux nodes, where the cluster file does not say: TFLITE or NATIVE; None: NATIVE among boards, else TFLITE."""
    mode: str = REFERENCE
    """Which kernels tflite takes: REFERENCE or XNNPACK."""
    exchange_deadline_s: float | None = None
    """Of the nodes' waits for each other; None: one of the two above for runs with Linux nodes, else `deadline_s`."""
    probe_links: bool = False
    """Measure the links between Linux nodes after the run."""
    sanitize: bool = False
    """posix only: build the nodes with ASan and UBSan."""
