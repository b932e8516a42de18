"""The Python protocol against the C headers, and every message against its bytes."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any, Protocol

import pytest

from disco_firmware import framing, link, protocol
from disco_firmware.protocol import (
    Channels,
    Connect,
    Credit,
    Done,
    ErrorReport,
    Hello,
    InputPart,
    MessageError,
    Opcode,
    OpRecord,
    OpRecords,
    OutputPart,
    PeerHello,
    RouteRecord,
    RouteRecords,
    Run,
    Status,
    StepRecord,
    StepRecords,
    Unit,
    Welcome,
)


class _Message(Protocol):
    def pack(self) -> bytes: ...


def _header(name: str) -> str:
    text = (files("disco_firmware") / "runtime" / "include" / "disco" / f"{name}.h").read_text()
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def _defines(name: str) -> dict[str, int]:
    found = re.findall(r"#define DISCO_(\w+)\s+(0x[0-9A-Fa-f]+|\d+)u?\s*$", _header(name), re.MULTILINE)
    return {key: int(value, 0) for key, value in found}


def _enum(name: str, prefix: str) -> dict[str, int]:
    found = re.findall(rf"\b{prefix}(\w+)\s*=\s*(0x[0-9A-Fa-f]+|\d+)", _header(name))
    return {key: int(value, 0) for key, value in found}


def test_every_number_of_protocol_h_is_the_same_here() -> None:
    defines = _defines("protocol")
    assert len(defines) >= 11
    for name, value in defines.items():
        assert getattr(protocol, name) == value, name


def test_enumerations_are_those_of_the_headers() -> None:
    assert _enum("protocol", "DISCO_MSG_") == {code.name: code.value for code in Opcode}
    statuses = _enum("status", "DISCO_")
    assert statuses == {status.name: status.value for status in Status}
    assert _enum("port", "DISCO_UNIT_") == {unit.name: unit.value for unit in Unit}


def test_sizes_and_timers_are_those_of_the_link() -> None:
    assert _defines("model")["MODEL_ABI"] == protocol.MODEL_ABI
    defines = _defines("link")
    assert len(Welcome.layout.pack(*WELCOME_VALUES)) <= defines["CONTROL_MAX_PAYLOAD"]
    assert defines["LINK_TIMEOUT_FIRST_MS"] == link.TIMEOUT_FIRST_S * 1000
    assert defines["LINK_TIMEOUT_LAST_MS"] == link.TIMEOUT_LAST_S * 1000
    assert framing.OVERHEAD_BYTES + protocol.MAX_PAYLOAD < 254
    assert OpRecord.layout.size == protocol.OP_RECORD_BYTES
    assert RouteRecord.layout.size == protocol.ROUTE_RECORD_BYTES
    assert {Opcode.ACK, Opcode.NAK, Opcode.HELLO, Opcode.WELCOME} == protocol.UNSEQUENCED


WELCOME_NUMBERS = (1, 1, 0, 2, 0, 1, 15_625_000, 25_000_000, 1, 65_536, 8192, 240, 2)
WELCOME_VALUES = (*WELCOME_NUMBERS, bytes(range(16)), b"board", b"core")
WELCOME = Welcome(*WELCOME_VALUES[:-2], "qemu-mps2-an386", "cortex-m4")  # type: ignore[arg-type]

MESSAGES: list[tuple[Any, str]] = [
    (Hello(9), "0400 09 00"),
    (Connect(1000), "e8030000"),
    (Run(3, 2000, 1), "03000000 d0070000 01000000"),
    (Done(3, 400, 1, 2**40), "03000000 90010000 0100000000000000 0000000000010000"),
    (ErrorReport(3, 7, 0xFFFF, 1, 12, 500), "0300 0700 ffff 01 00 0c000000 f4010000"),
    (PeerHello(bytes(16), 1, 2), "00" * 16 + "01 02 0400"),
    (Credit(4, 5), "04000000 0500"),
    (OpRecord(1, 2, 3, 4, 5, 6), "".join(f"{n:02x}" + "00" * 7 for n in range(1, 6)) + "06000000 00000000"),
    (RouteRecord(1, 2, 3, 4, 5), "01" + "00" * 7 + "02" + "00" * 7 + "03000000 04000000 05000000 00000000"),
    (InputPart(1, 2, b"\x7f"), "0100 0000 02000000 7f"),
    (OutputPart(1, 2, b""), "0100 0000 02000000"),
    (Channels(4, 5, 6, b"\x80"), "04 05 0600 80"),
]


@pytest.mark.parametrize(("message", "wire"), MESSAGES)
def test_messages_are_packed_as_documented(message: Any, wire: str) -> None:
    assert message.pack() == bytes.fromhex(wire)
    assert type(message).unpack(message.pack()) == message


def test_welcome_round_trip() -> None:
    payload = WELCOME.pack()
    assert len(payload) == 96
    assert payload[32:48] == bytes(range(16))
    assert payload[48:].startswith(b"qemu-mps2-an386\0")
    assert Welcome.unpack(payload) == WELCOME
    with pytest.raises(MessageError, match="no text"):
        Welcome.unpack(payload[:48] + b"\xff" + payload[49:])
    with pytest.raises(MessageError, match="is no text"):
        Welcome.unpack(payload[:48] + b"\x1b" + payload[49:])


@pytest.mark.parametrize("kind", [Hello, Welcome, Connect, Run, Done, ErrorReport, PeerHello, Credit, OpRecord])
def test_another_size_is_refused_by_name(kind: Any) -> None:
    for size in (0, kind.layout.size - 1, kind.layout.size + 1):
        with pytest.raises(MessageError, match=f"{kind.__name__} of {size} bytes, expected {kind.layout.size}"):
            kind.unpack(bytes(size))


@pytest.mark.parametrize("kind", [InputPart, OutputPart, Channels, OpRecords, RouteRecords, StepRecords])
def test_shorter_than_its_header_is_refused(kind: Any) -> None:
    with pytest.raises(MessageError, match="shorter than its header"):
        kind.unpack(bytes(3))


def test_channels_carry_the_lowest_bits() -> None:
    assert Channels(0x104, 0x205, 0x30006, b"\x80").pack() == Channels(4, 5, 6, b"\x80").pack()


def test_records_come_in_tables() -> None:
    ops = OpRecords(7, 2, (OpRecord(1, 2, 3, 4, 5, 6), OpRecord(7, 8, 9, 10, 11, 12)))
    routes = RouteRecords(7, 0, (RouteRecord(1, 2, 3, 4, 5),))
    steps = StepRecords(7, 1, (StepRecord(1), StepRecord(2**32 - 1)))
    for table in (ops, routes, steps):
        assert table.pack()[:8] == bytes([7, 0, 0, 0, table.first, 0, len(table.records), 0])
        assert type(table).unpack(table.pack()) == table
        with pytest.raises(MessageError, match="records"):
            type(table).unpack(table.pack()[:-1])


def test_a_stream_is_split_into_full_frames() -> None:
    stream = bytes(range(256)) * 3
    parts = InputPart.split(1, stream)
    assert [part.offset for part in parts] == [0, 232, 464, 696]
    assert all(len(part.pack()) == protocol.MAX_PAYLOAD for part in parts[:-1])
    assert b"".join(part.data for part in parts) == stream
    assert {part.index for part in parts} == {1}
    assert InputPart.split(0, b"") == []


def test_units_have_labels() -> None:
    assert [unit.label for unit in Unit] == ["instructions", "cycles", "ns", "cycles-estimate"]
