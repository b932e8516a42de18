"""Watches the agents of a run in a thread: their heartbeats, their answers, and what becomes of them.

Whoever waits for a node looks at `faults` when `fileno` becomes readable: so a node that died, hangs or lost its
network is known at once, whatever line it was to be heard on.
"""

from __future__ import annotations

import contextlib
import queue
import selectors
import socket
import threading
import time
from typing import Any, NamedTuple, TypeVar

from disco_host.node.frames import FrameError, FrameReader, message_of, pack_bytes, pack_message
from disco_host.node.messages import HALTED, Beat, Need, Ping, Pong, Prepared, Probed, Refusal, Started, kinds
from disco_host.remote.clocks import ClockSample, sample
from disco_targets.errors import DiscoError

PATIENT_S = 6.0
"""Without a heartbeat for so long a node is taken for gone, while machines are busy with building and starting."""
ANSWER_S = 60.0
"""So long an agent may take for what it is asked, while its heart beats: it gives up sooner itself."""
MOST_ANSWERS = 4
"""That may wait to be taken; nobody of ours sends more."""
CLOCK_ROUNDS = 20
SEND_S = 3.0
_READ_BYTES = 64 * 1024
_ANSWERS = kinds(Beat, Need, Ping, Pong, Prepared, Probed, Refusal, Started)
_T = TypeVar("_T")


class AgentFaultError(DiscoError):
    """An agent died, hangs, cannot be heard or reports a failure."""

    def __init__(self, node: int, message: str) -> None:
        super().__init__(message)
        self.node = node


class Fault(NamedTuple):
    """What happened to a node."""

    what: str
    silent: bool
    """It was not heard of any more: the other nodes may know of it only when their own deadlines pass."""


class _Agent:
    """One control connection."""

    def __init__(self, node: int, name: str, line: socket.socket) -> None:
        self.node = node
        self.name = name
        self.line = line
        self.reader = FrameReader()
        self.heard = time.monotonic()
        self.beat: Beat | None = None
        self.sending = threading.Lock()
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.pongs: queue.SimpleQueue[ClockSample | None] = queue.SimpleQueue()
        self.asked: dict[int, int] = {}
        """When each ping that is awaited was sent, in ns of our clock."""
        self.fault: Fault | None = None

    def send(self, data: bytes) -> None:
        with self.sending:
            self.line.sendall(data)


class Watch:
    """A context manager; agents are added one by one, from any thread."""

    def __init__(self, silence_s: float = PATIENT_S) -> None:
        """Starts the thread."""
        self.silence_s = silence_s
        self._agents: dict[int, _Agent] = {}
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = socket.socketpair()
        self._alarm, self._alarmer = socket.socketpair()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._closing = False
        self._pings = 0
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all jobs: the agents see the end of their connections."""
        if self._closing:
            return
        self._closing = True
        self._waker.send(b"x")
        self._thread.join()
        for agent in self._agents.values():
            agent.line.close()
            self._answer(agent, AgentFaultError(agent.node, "interrupted"))
        self._selector.close()
        for end in (self._wake, self._waker, self._alarm, self._alarmer):
            end.close()

    def fileno(self) -> int:
        """Readable as soon as there is a fault."""
        return self._alarm.fileno()

    def faults(self) -> dict[int, Fault]:
        """What happened to which node, so far."""
        with self._lock:
            return {node: agent.fault for node, agent in self._agents.items() if agent.fault is not None}

    def beats(self) -> dict[int, Beat]:
        """What each node last said that it does."""
        with self._lock:
            return {node: agent.beat for node, agent in self._agents.items() if agent.beat is not None}

    def add(self, node: int, name: str, line: socket.socket) -> None:
        """Watches a control connection from now on."""
        line.settimeout(SEND_S)
        agent = _Agent(node, name, line)
        with self._lock:
            self._agents[node] = agent
            self._selector.register(line, selectors.EVENT_READ, agent)
        with contextlib.suppress(OSError):
            self._waker.send(b"x")

    def expect_beats(self, silence_s: float) -> None:
        """From now on another silence is a fault."""
        self.silence_s = silence_s
        with contextlib.suppress(OSError):
            self._waker.send(b"x")

    def request(self, node: int, message: Any, answer: type[_T], deadline_s: float = ANSWER_S) -> _T:
        """Asks an agent and waits for its answer.

        Raises:
            AgentFaultError: It failed, is gone, or does not answer.
        """
        self._send(self._agents[node], pack_message(message))
        return self.answer(node, answer, deadline_s)

    def answer(self, node: int, kind: type[_T], deadline_s: float = ANSWER_S) -> _T:
        """The next answer of an agent, which must be of this kind; raises as `request`."""
        agent = self._agents[node]
        got = _take_within(deadline_s, agent.answers, agent, kind)
        if isinstance(got, AgentFaultError):
            raise got
        if not isinstance(got, kind):
            raise self.nonsense(node, f"answered {got!r}")
        return got

    def nonsense(self, node: int, what: str) -> AgentFaultError:
        """The error for an agent that did something that none of ours does."""
        return AgentFaultError(
            node, f"node {node} ({self._agents[node].name}) {what}, which was not asked for: is it a disco-node?"
        )

    def send_bytes(self, node: int, data: bytes) -> None:
        """Sends raw bytes, at most `frames.MAX_BYTES`; raises as `request`."""
        self._send(self._agents[node], pack_bytes(data))

    def clocks(self) -> dict[int, list[ClockSample]]:
        """A burst of readings of each agent's clock.

        Raises:
            AgentFaultError: An agent is gone.
        """
        return {agent.node: [self._clock(agent) for _ in range(CLOCK_ROUNDS)] for agent in list(self._agents.values())}

    def _clock(self, agent: _Agent) -> ClockSample:
        self._ping(agent)
        got = _take_within(PATIENT_S, agent.pongs, agent, Pong)
        if got is None:
            raise AgentFaultError(agent.node, agent.fault.what if agent.fault else "interrupted")
        return got

    def _ping(self, agent: _Agent) -> None:
        with self._lock:
            self._pings += 1
            number = self._pings
        agent.asked[number] = time.monotonic_ns()
        self._send(agent, pack_message(Ping(number)))

    def _send(self, agent: _Agent, data: bytes) -> None:
        try:
            agent.send(data)
        except OSError as error:
            self._fail(agent, f"is gone: {error.strerror or error}")
            raise AgentFaultError(agent.node, agent.fault.what if agent.fault else "interrupted") from error

    # ---- the thread

    def _run(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select(self._patience()):
                if key.data is None:
                    self._wake.recv(_READ_BYTES)
                else:
                    self._listen(key.data)
            self._judge()

    def _watched(self) -> list[_Agent]:
        with self._lock:
            return [agent for agent in self._agents.values() if agent.fault is None]

    def _patience(self) -> float | None:
        heard = [agent.heard for agent in self._watched()]
        return max(0.0, min(heard) + self.silence_s - time.monotonic()) if heard else None

    def _judge(self) -> None:
        """After everything that had come was heard: who is silent?"""
        now = time.monotonic()
        for agent in self._watched():
            if now - agent.heard >= self.silence_s:
                self._fail(
                    agent,
                    f"was not heard of for {now - agent.heard:.1f} s: it hangs, or the network to it is cut",
                    silent=True,
                )

    def _listen(self, agent: _Agent) -> None:
        try:
            self._hear(agent)
        except Exception as error:  # noqa: BLE001 - without this thread all waits would end at their deadlines only
            self._fail(agent, f"sent what this program cannot take ({error!r}): please report this")

    def _hear(self, agent: _Agent) -> None:
        try:
            data = agent.line.recv(_READ_BYTES)
            now_ns = time.monotonic_ns()
            if not data:
                self._fail(agent, "is gone: its agent has ended")
                return
            agent.heard = time.monotonic()
            for frame in agent.reader.feed(data):
                self._take(agent, message_of(frame, _ANSWERS), now_ns)
        except OSError as error:
            self._fail(agent, f"is gone: {error.strerror or error}")
        except FrameError as error:
            self._fail(agent, f"cannot be understood: {error}")

    def _take(self, agent: _Agent, message: Any, now_ns: int) -> None:
        if isinstance(message, Beat):
            agent.beat = message
            if message.doing == HALTED:
                self._fail(agent, f"hangs: its engine was halted ({message.seconds:.1f} s after it began)")
            else:
                self._say_alive(agent)
        elif isinstance(message, Pong):
            asked = agent.asked.pop(message.number, None)
            if asked is not None:
                agent.pongs.put(sample(asked, message.nanoseconds, now_ns))
        elif isinstance(message, Refusal):
            self._fail(agent, f"reports: {message.what}")
        elif agent.answers.qsize() >= MOST_ANSWERS:
            raise FrameError(f"{MOST_ANSWERS} answers came that were not asked for")
        else:
            agent.answers.put(message)

    def _say_alive(self, agent: _Agent) -> None:
        """Without waiting: who sends something else just now says so by that."""
        if agent.sending.acquire(blocking=False):
            try:
                agent.line.sendall(pack_message(Ping(0)))
            except OSError as error:
                self._fail(agent, f"is gone: {error.strerror or error}")
            finally:
                agent.sending.release()

    def _fail(self, agent: _Agent, what: str, *, silent: bool = False) -> None:
        with self._lock:
            if agent.fault is not None:
                return
            agent.fault = Fault(f"node {agent.node} ({agent.name}) {what}", silent)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(agent.line)
        self._answer(agent, AgentFaultError(agent.node, agent.fault.what))
        with contextlib.suppress(OSError):
            self._alarmer.send(b"x")

    @staticmethod
    def _answer(agent: _Agent, error: AgentFaultError) -> None:
        agent.answers.put(error)
        agent.pongs.put(None)


def _take_within(deadline_s: float, answers: queue.SimpleQueue[_T], agent: _Agent, kind: type[Any]) -> _T:
    """The next of an agent's answers; AgentFaultError when none comes in time."""
    try:
        return answers.get(timeout=deadline_s)
    except queue.Empty:
        doing = f"it last said that it {agent.beat.doing}" if agent.beat is not None else "its heart never beat"
        raise AgentFaultError(
            agent.node,
            f"node {agent.node} ({agent.name}) does not answer: {kind.type.upper()} was awaited for {deadline_s:g} s; "
            f"{doing}",
        ) from None
