"""One job of an agent: a host's control connection, from the slice to the running engine and its end.

The job lives as long as that connection. Three threads serve it: the connection's own (work), a reader (so that the
host's end is seen at any time and clocks are read at once) and one for the heartbeats.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disco_host.node import probe
from disco_host.node.address import parse_endpoint
from disco_host.node.cache import Slice, check_request
from disco_host.node.calls import Keys, call
from disco_host.node.engines import Builder, Engine, native_engine, tflite_engine
from disco_host.node.frames import BYTES_KIND, Frame, FrameError, message_of, pack_message, read_frames
from disco_host.node.messages import (
    BEAT_S,
    HALTED,
    NATIVE,
    PEER,
    PROBE,
    Address,
    Beat,
    Need,
    Ping,
    Pong,
    Prepare,
    Prepared,
    Probe,
    Refusal,
    Start,
    Started,
    kinds,
)
from disco_host.node.native_build import image_of, runtime_hash
from disco_host.node.rendezvous import Rendezvous, hang_up
from disco_targets.disk import full_disk, is_full
from disco_targets.errors import DiscoError
from disco_targets.scratch import scratch_folder

HOST_SILENCE_S = 10.0
"""The host says something at every heartbeat; without a word for so long it is gone."""
MOST_WAITING = 8
"""Frames of the host that are kept until their turn comes."""
_COMMANDS = kinds(Prepare, Start, Probe, Ping)


@dataclass(frozen=True)
class Surroundings:
    """What a job has of its agent."""

    keys: Keys
    cache: Path
    log: Callable[[str], None]


class Job:
    """One job."""

    def __init__(self, surroundings: Surroundings, line: socket.socket, number: str, owner: str) -> None:
        """`line`: the control connection; `number`: what host and peers call the job; `owner`: who asked for it."""
        self.number = number
        self.owner = owner
        self.since = self.heard = time.monotonic()
        self._around = surroundings
        self._line = line
        self._sending = threading.Lock()
        self._inbox: deque[Any] = deque()
        self._changed = threading.Condition()
        self._ended = threading.Event()
        self._look = threading.Event()
        """Wakes the heartbeat: something became of the engine, or the job is over."""
        self.lines = Rendezvous()
        """Connections that hosts and peers have opened for this job come here."""
        self._slice: Slice | None = None
        self._prepared = False
        self._builder: Builder | None = None
        self._engine: Engine | None = None
        self._doing = ("awaits its slice", self.since)

    @property
    def over(self) -> bool:
        """True as soon as its end has begun."""
        return self._ended.is_set()

    def serve(self) -> None:
        """Serves the host until its connection closes; returns when nothing of the job is left."""
        threads = [threading.Thread(target=work, daemon=True) for work in (self._read, self._beat)]
        for thread in threads:
            thread.start()
        try:
            with scratch_folder("node") as folder:
                self._work(folder)
        except DiscoError as error:
            self._refuse(str(error))
        except OSError as error:
            plain = f"{error.filename or 'the connection'}: {error.strerror or error}"
            self._refuse(full_disk(error, advice="free some space on this node") if is_full(error) else plain)
        finally:
            self.end()
            for thread in threads:
                thread.join()
            if self._slice is not None:
                self._slice.close()

    def end(self) -> None:
        """Ends the job from any thread: its lines close, its processes end."""
        with self._changed:
            if self._ended.is_set():
                return
            self._ended.set()
            self._look.set()
            self._changed.notify_all()
            builder, engine = self._builder, self._engine
        hang_up(self._line)
        self.lines.close()
        for process in (builder, engine):
            if process is not None:
                process.stop()

    # ---- the host's connection

    def _read(self) -> None:
        """Hands what the host says to the working thread; answers pings at once."""
        try:
            self._line.settimeout(HOST_SILENCE_S)
            for frame in read_frames(self._line):
                self.heard = time.monotonic()
                if frame.kind == BYTES_KIND:
                    self._hand_over(frame)
                    continue
                message = message_of(frame, _COMMANDS)
                if isinstance(message, Ping):
                    self._send(Pong(message.number, time.monotonic_ns()))
                else:
                    self._hand_over(message)
        except TimeoutError:
            self._around.log(f"{self.owner} went silent: its job ends")
        except OSError:
            pass  # it has gone
        except FrameError as error:
            self._refuse(str(error))
        self.end()

    def _hand_over(self, item: Any) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.over or len(self._inbox) < MOST_WAITING)
            self._inbox.append(item)
            self._changed.notify_all()

    def _next(self) -> Any:
        """What the host said next; None when the job is over."""
        with self._changed:
            self._changed.wait_for(lambda: self.over or self._inbox)
            if self.over:
                return None
            self._changed.notify_all()
            return self._inbox.popleft()

    def _send(self, message: Any) -> None:
        data = pack_message(message)
        with self._sending:
            self._line.sendall(data)

    def _refuse(self, what: str) -> None:
        if not self.over:
            self._around.log(f"job of {self.owner} failed: {what}")
            with contextlib.suppress(OSError):
                self._send(Refusal(what))

    # ---- what the host asks for

    def _work(self, folder: Path) -> None:
        while (message := self._next()) is not None:
            if isinstance(message, Prepare):
                self._prepare(message)
            elif isinstance(message, Start):
                self._start(message, folder)
            elif isinstance(message, Probe):
                self._send(self._probe(message.peer))
            else:
                raise DiscoError("bytes came that no part of a slice was awaited for")

    def _prepare(self, request: Prepare) -> None:
        check_request(request)
        if self._slice is not None:
            raise DiscoError("a job has one slice, another one came")
        self._now("takes its slice")
        slice_ = self._slice = Slice(self._around.cache, request, runtime_hash() if request.engine == NATIVE else "")
        missing = slice_.missing()
        self._send(Need(missing))
        for place in missing:
            slice_.store(request.parts[place], self._bytes())
        if request.engine == NATIVE and image_of(slice_.folder, request.node) is None:
            self._now("builds its slice")
            self._build(slice_)
        self._prepared = True
        self._now("awaits the start")
        self._send(Prepared(len(missing)))

    def _bytes(self) -> Iterator[bytes]:
        while (frame := self._next()) is not None:
            if not isinstance(frame, Frame):
                raise DiscoError("a message came in the middle of the slice")
            yield frame.payload

    def _build(self, slice_: Slice) -> None:
        with self._changed:
            if self.over:
                return
            asked = slice_.request
            self._builder = Builder(slice_.folder, asked.node, asked.nodes, framed=asked.framed)
        self._builder.wait()

    def _start(self, request: Start, folder: Path) -> None:
        slice_ = self._slice
        if slice_ is None or not self._prepared or self._engine is not None:
            raise DiscoError("a job starts once, and after its slice has come")
        self._now("connects to its peers")
        for peer in request.dial:
            self._dial(slice_.request.node, peer)
        host, peers = self.lines.complete({*request.expect, *(peer.node for peer in request.dial)})
        for line in (host, *peers.values()):
            line.settimeout(None)
        with self._changed:
            if self.over:
                return
            asked, log = slice_.request, folder / "engine.log"
            if asked.engine == NATIVE:
                self._engine = native_engine(slice_.folder, asked.node, log, host, peers)
            else:
                self._engine = tflite_engine(slice_.folder, asked.node, asked.mode, log, host, peers)
            self._engine.tell_end(self._look.set)
            # The engine's copies are the only ones left: its end is seen on the lines, whatever becomes of us.
            for line in (host, *peers.values()):
                line.close()
        self._now("runs")
        self._send(Started())

    def _dial(self, node: int, peer: Address) -> None:
        try:
            line = call(parse_endpoint(peer.address), self._around.keys, PEER, self.number, node)
        except DiscoError as error:
            raise DiscoError(f"it cannot connect to node {peer.node}: {error}") from error
        self.lines.add(PEER, peer.node, line)

    def _probe(self, peer: Address) -> Any:
        self._now(f"probes the link to node {peer.node}")
        try:
            line = call(parse_endpoint(peer.address), self._around.keys, PROBE, self.number)
        except DiscoError as error:
            raise DiscoError(f"it cannot connect to node {peer.node}: {error}") from error
        with line:
            return probe.measure(line)

    # ---- heartbeats

    def _now(self, doing: str) -> None:
        self._doing = (doing, time.monotonic())

    def _beat(self) -> None:
        with contextlib.suppress(OSError, FrameError):
            while not self.over:
                self._look.clear()
                engine = self._engine
                ended = engine.epitaph() if engine is not None else None
                if engine is not None and ended is not None and not engine.in_order():
                    self._refuse(f"its engine {ended}")
                    break
                self._send(self._report(engine))
                self._look.wait(BEAT_S)
        self.end()

    def _report(self, engine: Engine | None) -> Beat:
        doing, since = self._doing
        if engine is not None and engine.stopped():
            return Beat(HALTED, time.monotonic() - since)
        said = engine.said() if engine is not None else None
        return said or Beat(doing, time.monotonic() - since)
