"""What the host keeps of a node's account of a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from disco_firmware import protocol
from disco_host.capture import Collector
from disco_targets.errors import DiscoError


@pytest.mark.parametrize("kind", ["ops", "routes", "stages", "steps"])
def test_no_more_records_are_kept_than_a_run_has(kind: str) -> None:
    op = SimpleNamespace(height=1, row_step=1, joined=False)
    program = SimpleNamespace(node=0, outputs=(), ops=(op, op), sends=(1, 2), stages=(1, 2))
    collector = Collector(cast(Any, None), cast(Any, program), 1)
    message, record = {
        "ops": (protocol.OpRecords, protocol.OpRecord),
        "routes": (protocol.RouteRecords, protocol.RouteRecord),
        "stages": (protocol.StageRecords, protocol.StageRecord),
        "steps": (protocol.StepRecords, protocol.StepRecord),
    }[kind]
    zeros: Any = record.unpack(bytes(record.layout.size))
    take = getattr(collector, kind)
    take(message(1, 0, (zeros,)))
    with pytest.raises(DiscoError, match=r"node 0 sent 3 \w+ records, a run has 2 in inference 1"):
        take(message(1, 1, (zeros, zeros)))
    take(message(1, 1, (zeros,)))
    with pytest.raises(DiscoError, match="3"):
        take(message(1, 2, (zeros,)))
