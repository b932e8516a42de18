"""A node in Python: speaks the protocol over a socket and answers with the golden's values.

Its behaviour can be spoilt in one way at a time, to see what the host makes of it.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np

from disco_firmware import protocol
from disco_firmware.bundle import Bundle
from disco_firmware.link import Link, Message
from disco_firmware.protocol import ADDRESS_HOST, Opcode
from disco_host.golden import Golden


class FakeNode:
    """Serves one socket in a thread until it is closed or the host is gone."""

    def __init__(self, bundle: Bundle, node: int, fault: str = "", /, **welcome: Any) -> None:
        """`fault`: see `_FAULTS` below; `welcome`: fields of WELCOME that lie."""
        assert fault in _FAULTS, fault
        self.host_end, self._line = socket.socketpair()
        self._bundle = bundle
        self._program = bundle.manifest.programs[node]
        self._golden = Golden(bundle, keep_tensors=True)
        self._fault = fault
        self._lies = welcome
        self._link = Link(node, ADDRESS_HOST)
        self._input = bytearray()
        self.inferences = 0
        self.hellos = 0
        self.bytes_taken = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the node."""
        for end in (self.host_end, self._line):
            end.close()
        self._thread.join(5)

    def _serve(self) -> None:
        try:
            while True:
                now = time.monotonic()
                self._line.sendall(self._link.bytes_to_send(now))
                ready, _, _ = select.select([self._line], [], [], self._link.next_timeout(now) or 0.02)
                if not ready:
                    continue
                data = self._line.recv(65536)
                if not data:
                    return
                self.bytes_taken += len(data)
                if self._fault == "garbage":
                    self._line.sendall(b"Hello, I am a bootloader\r\n")
                    continue
                if self._fault == "silent":
                    continue
                for message in self._link.receive(data, time.monotonic()):
                    self._take(message)
        except (OSError, ValueError):  # closed under us
            return

    def _take(self, message: Message) -> None:
        if message.opcode == Opcode.HELLO:
            self.hellos += 1
            hello = protocol.Hello.unpack(message.payload)
            if self._link.session != hello.session:
                self._link.reset(hello.session)
            self._link.send_control(Opcode.WELCOME, self._welcome())
        elif message.opcode == Opcode.CONNECT:
            self._connect()
        elif message.opcode == Opcode.INPUT:
            self._input += protocol.InputPart.unpack(message.payload).data
        elif message.opcode == Opcode.RUN:
            self._run(protocol.Run.unpack(message.payload))

    def _welcome(self) -> bytes:
        manifest = self._bundle.manifest
        welcome = protocol.Welcome(
            version=protocol.PROTOCOL_VERSION,
            model_abi=protocol.MODEL_ABI,
            node=self._program.node,
            node_count=manifest.nodes,
            unit=protocol.Unit.NANOSECONDS,
            endianness=protocol.LITTLE_ENDIAN,
            ticks_per_second=1_000_000_000,
            clock_hz=0,
            resolution_ticks=1,
            free_ram_bytes=0,
            stack_bytes=0,
            max_payload=protocol.MAX_PAYLOAD,
            link_count=manifest.nodes,
            bundle_id=bytes.fromhex(manifest.bundle_id),
            board="posix",
            core="host",
        )
        payload = replace(welcome, **self._lies).pack()
        return payload[:-3] if self._fault == "short welcome" else payload

    def _connect(self) -> None:
        if self._fault == "no peer":
            report = protocol.ErrorReport(
                protocol.Status.ERR_TIMEOUT, protocol.NO_INDEX, protocol.NO_INDEX, 1 - self._program.node, 0, 2500
            )
            self._link.send(Opcode.ERROR, report.pack())
        else:
            self._link.send(Opcode.CONNECTED)

    def _run(self, run: protocol.Run) -> None:
        self.inferences += 1
        if self._fault == "dies":
            self._line.shutdown(socket.SHUT_RDWR)
            return
        if self._fault == "hangs":
            return
        if self._fault == "reports an error":
            report = protocol.ErrorReport(protocol.Status.ERR_TIMEOUT, 1, 0, 1 - self._program.node, 30, 1500)
            self._link.send(Opcode.ERROR, report.pack())
            return
        if self._fault == "unexpected":
            self._link.send(Opcode.CONNECTED)
            return
        self._report(run)

    def _report(self, run: protocol.Run) -> None:
        sample = np.frombuffer(bytes(self._input), np.int8)
        self._input.clear()
        outputs = self._golden.run(sample)
        number = run.inference + 1 if self._fault == "wrong inference" else run.inference
        for index, (share, whole) in enumerate(zip(self._program.outputs, outputs, strict=True)):
            values = np.take(whole, share.channels, axis=-1).copy()
            if self._fault == "flipped output" and values.size:
                values.flat[3] ^= 1
            stream = values.tobytes()
            if self._fault == "truncated output":
                stream = stream[:-1]
            for part in protocol.OutputPart.split(index, stream):
                self._link.send(Opcode.OUTPUT, part.pack())
        for at in range(0, len(self._program.ops), 4):
            records = tuple(self._op_record(place) for place in range(at, min(at + 4, len(self._program.ops))))
            self._link.send(Opcode.OPS, protocol.OpRecords(run.inference, at, records).pack())
        routes = tuple(
            protocol.RouteRecord(1000 + 10 * i, 1200 + 10 * i, send.bytes, 2, 3 * run.inference)
            for i, send in enumerate(self._program.sends)
        )
        if routes and self._fault != "no routes":
            self._link.send(Opcode.ROUTES, protocol.RouteRecords(run.inference, 0, routes).pack())
        self._link.send(Opcode.DONE, protocol.Done(number, 0, 1000, 5000 + 100 * run.inference).pack())

    def _op_record(self, place: int) -> protocol.OpRecord:
        op = self._program.ops[place]
        checksum = self._golden.checksum(op.output, op.channels)
        if self._fault == "flipped tensor" and place == 0:
            checksum ^= 1
        start = 1000 + 1000 * place
        return protocol.OpRecord(start, start + 900, 500 + place, 200, 100, checksum)


_FAULTS = (
    "",
    "silent",
    "garbage",
    "short welcome",
    "no peer",
    "dies",
    "hangs",
    "reports an error",
    "unexpected",
    "wrong inference",
    "truncated output",
    "no routes",
    "flipped output",
    "flipped tensor",
)
