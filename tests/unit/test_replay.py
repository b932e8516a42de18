"""The replay against runs computed by hand. All times are binary fractions, so that equal means equal."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_planning.replay import replay, without_communication
from disco_planning.replay_graph import Arrival, Graph, Link, Part, Protocol, Stream, Task

WHOLE = Protocol(data_bytes=1000)
WIRE = Link((0, 1), bytes_per_second=64.0)


def _one_way(ahead: float, bytes_: int = 64, link: Link = WIRE, protocol: Protocol = WHOLE) -> Graph:
    """Node 0 makes bytes in 1 s; node 1 works `ahead` s, then needs them for another second."""
    stream = Stream("x", 0, 1, (Part(bytes_, 0),))
    needs = (Arrival(0, bytes_),)
    return Graph(((Task("make", 1.0),), (Task("own", ahead), Task("use", 1.0, needs))), (stream,), (link,), protocol)


@pytest.mark.parametrize(
    ("ahead", "latency", "waiting"),
    [(3.0, 4.0, 0.0), (2.0, 3.0, 0.0), (1.5, 3.0, 0.5), (0.0, 3.0, 2.0)],
    ids=["hidden", "just hidden", "partly hidden", "not hidden"],
)
def test_computation_hides_what_it_outlasts(ahead: float, latency: float, waiting: float) -> None:
    result = replay(_one_way(ahead))
    assert result.latency_s == latency
    assert result.waiting_s(1) == waiting
    assert result.compute_s(1) == ahead + 1.0


def test_critical_path_of_an_exposed_transfer() -> None:
    path = replay(_one_way(1.5)).critical_path()
    assert [(step.label, step.nodes, step.start_s, step.end_s) for step in path] == [
        ("make", (0,), 0.0, 1.0),
        ("x", (0, 1), 1.0, 2.0),
        ("use", (1,), 2.0, 3.0),
    ]


def test_critical_path_of_a_hidden_transfer_is_computation_only() -> None:
    path = replay(_one_way(3.0)).critical_path()
    assert [(step.label, step.start_s, step.end_s) for step in path] == [("own", 0.0, 3.0), ("use", 3.0, 4.0)]


def test_latency_and_overhead_of_a_frame_count() -> None:
    link = replace(WIRE, latency_s=0.25, frame_s=0.125)
    # Two frames of at most 40 bytes beside 8 of overhead: 1 + 2 * 0.125 + (48 + 32) / 64 + 0.25 + 1.
    result = replay(_one_way(0.0, link=link, protocol=Protocol(40, overhead_bytes=8)))
    assert result.latency_s == 1.0 + 0.25 + 1.25 + 0.25 + 1.0
    assert [frame.bytes for frame in result.frames] == [48, 32]
    assert result.frames[1].start_s == result.frames[0].free_s  # the latency does not take the line


def test_a_token_bucket_lets_pass_what_a_pause_has_saved() -> None:
    link = replace(WIRE, burst_bytes=48.0)
    # Full after a second: of 64 bytes 16 wait for the rate. Of 32 more a quarter of a second later, 16 have been saved.
    tasks = (Task("make", 1.0), Task("more", 0.5))
    stream = Stream("x", 0, 1, (Part(64, 0), Part(32, 1)))
    graph = Graph((tasks, (Task("use", 0.0, (Arrival(0, 96),)),)), (stream,), (link,), WHOLE)
    assert [(frame.start_s, frame.free_s) for frame in replay(graph).frames] == [(1.0, 1.25), (1.5, 1.75)]
    assert replay(_one_way(0.0, bytes_=40, link=link)).latency_s == 2.0


def _rows(link: Link, rows: int = 4) -> Graph:
    """Rows of 1 s and 32 bytes; row r of the next layer, of 1 s too, needs the other node's rows up to r + 1."""
    needed = [min(r + 2, rows) * 32 for r in range(rows)]
    nodes = tuple(
        (*(Task("first", 1.0),) * rows, *(Task("second", 1.0, (Arrival(1 - node, size),)) for size in needed))
        for node in (0, 1)
    )
    streams = tuple(Stream(f"rows of {n}", n, 1 - n, tuple(Part(32, r) for r in range(rows))) for n in (0, 1))
    return Graph(nodes, streams, (link,), WHOLE)


def test_rows_leave_while_the_next_are_computed() -> None:
    result = replay(_rows(WIRE))  # a row takes half a second: only a row that ends a layer could be late
    assert result.latency_s == 8.0
    assert [frame.start_s for frame in result.frames if frame.nodes == (0, 1)] == [1.0, 2.0, 3.0, 4.0]


def test_a_saturated_link_sets_the_pace() -> None:
    # 16 bytes/s: a row takes 2 s. Rows end to arrive at 3, 5 (with all that waited: 64 bytes, 4 s), ...
    result = replay(_rows(Link((0, 1), 16.0)))
    sizes = [(frame.start_s, frame.end_s, frame.bytes) for frame in result.frames if frame.nodes == (0, 1)]
    assert sizes == [(1.0, 3.0, 32), (3.0, 5.0, 32), (5.0, 7.0, 32), (7.0, 9.0, 32)]
    starts = [task.start_s for task in result.tasks[0][4:]]
    assert starts == [5.0, 7.0, 9.0, 10.0]  # rows 0..1, 0..2, 0..3, and no more to wait for
    assert result.latency_s == 11.0
    assert result.waiting_s(0) == 3.0


def test_half_duplex_shares_the_line() -> None:
    link = Link((0, 1), 32.0, full_duplex=False)  # a row takes 1 s, both directions 2 s per row
    result = replay(_rows(link))
    assert [frame.start_s for frame in result.frames] == [float(second) for second in range(1, 9)]
    # The other's row r has arrived after 2 r + 2 s at node 1 and 2 r + 3 s at node 0.
    assert [task.start_s for task in result.tasks[1][4:]] == [4.0, 6.0, 8.0, 9.0]
    assert [task.start_s for task in result.tasks[0][4:]] == [5.0, 7.0, 9.0, 10.0]
    assert replay(_rows(Link((0, 1), 32.0))).latency_s == 8.0  # full duplex hides all of it


def test_three_nodes() -> None:
    # 0 -> 1 takes 1 s, 1 -> 2 takes 2 s: 1 + 1 + 2 (work of node 1) + 2 + 1; node 2 has its own 3 s before.
    streams = (Stream("a", 0, 1, (Part(8, 0),)), Stream("b", 1, 2, (Part(8, 0),)))
    nodes = (
        (Task("n0", 1.0),),
        (Task("n1", 2.0, (Arrival(0, 8),)),),
        (Task("n2", 3.0), Task("end", 1.0, (Arrival(1, 8),))),
    )
    graph = Graph(nodes, streams, (Link((0, 1), 8.0), Link((1, 2), 4.0)), WHOLE)
    result = replay(graph)
    assert [tasks[-1].end_s for tasks in result.tasks] == [1.0, 4.0, 7.0]
    assert [result.waiting_s(node) for node in range(3)] == [0.0, 2.0, 3.0]
    assert [step.label for step in result.critical_path()] == ["n0", "a", "n1", "b", "end"]
    assert replay(without_communication(graph)).latency_s == 4.0


WINDOW = Protocol(data_bytes=64, window=1, acknowledgement_bytes=16, credit_bytes=32)


def test_a_window_waits_for_acknowledgements_that_a_busy_node_gives_late() -> None:
    # Frame 0: 1 to 2 s. Node 1 computes until 4, acknowledges (1/4 s), frame 1: 4.25 to 5.25.
    result = replay(_one_way(4.0, bytes_=128, protocol=WINDOW))
    assert [(frame.label, frame.start_s) for frame in result.frames] == [
        ("x", 1.0),
        ("acknowledgement", 4.0),
        ("x", 4.25),
        ("acknowledgement", 5.25),
    ]
    assert result.latency_s == 6.25
    assert [step.label for step in result.critical_path()] == ["own", "acknowledgement", "x", "use"]


def test_rows_gather_while_a_frame_is_under_way() -> None:
    stream = Stream("x", 0, 1, tuple(Part(8, task) for task in range(4)))
    nodes = ((Task("row", 0.25),) * 4, (Task("use", 1.0, (Arrival(0, 32),)),))
    frames = replay(Graph(nodes, (stream,), (WIRE,), replace(WINDOW, window=4))).frames
    # 8 bytes at once at 1/4; acknowledged at 5/8, seen after the third row: the 16 of two rows; then the last 8.
    assert [(frame.start_s, frame.bytes) for frame in frames if frame.label == "x"] == [(0.25, 8), (0.75, 16), (1.0, 8)]


def test_an_eager_sender_gathers_less() -> None:
    stream = Stream("x", 0, 1, tuple(Part(8, task) for task in range(4)))
    nodes = ((Task("row", 0.25),) * 4, (Task("use", 1.0, (Arrival(0, 32),)),))
    frames = replay(Graph(nodes, (stream,), (WIRE,), replace(WINDOW, window=4, eager=2))).frames
    # The second row does not wait for the acknowledgement of the first.
    starts = [(frame.start_s, frame.bytes) for frame in frames if frame.label == "x"]
    assert starts == [(0.25, 8), (0.5, 8), (0.75, 8), (1.0, 8)]


def test_leave_is_given_in_turn() -> None:
    graph = _one_way(3.0, protocol=WINDOW)
    opened = replace(graph, streams=(replace(graph.streams[0], opened_by=1),))
    # Node 1 gives leave at 3 (32 bytes: 1/2 s); the 64 bytes (1 s) acknowledge it.
    result = replay(opened)
    assert result.latency_s == 5.5
    assert [step.label for step in result.critical_path()] == ["own", "credit", "x", "use"]
    labels = [(frame.label, frame.start_s) for frame in result.frames]
    assert labels == [("credit", 3.0), ("x", 3.5), ("acknowledgement", 4.5)]


def test_a_buffer_is_used_again_when_its_bytes_have_left() -> None:
    # 128 bytes in frames of 64, one under way at a time: the second is packed at 2.25, when the first is acknowledged.
    stream = Stream("x", 0, 1, (Part(128, 0),))
    nodes = ((Task("make", 1.0), Task("overwrite", 1.0, handed_over=(0,))), (Task("use", 1.0, (Arrival(0, 128),)),))
    result = replay(Graph(nodes, (stream,), (WIRE,), WINDOW))
    assert result.tasks[0][1].start_s == 2.25


def test_waiting_for_each_other_is_refused() -> None:
    streams = (Stream("a", 0, 1, (Part(1, 0),)), Stream("b", 1, 0, (Part(1, 0),)))
    nodes = ((Task("0", 1.0, (Arrival(1, 1),)),), (Task("1", 1.0, (Arrival(0, 1),)),))
    with pytest.raises(ValueError, match="node 0 waits for ever before task 0"):
        replay(Graph(nodes, streams, (WIRE,), WHOLE))


def test_a_stream_without_a_link_is_refused() -> None:
    with pytest.raises(ValueError, match="no link between nodes 0 and 1"):
        replay(replace(_one_way(1.0), links=()))


@given(
    seconds=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=12),
    rate=st.floats(1.0, 1e4),
    window=st.sampled_from([None, 1, 4]),
    full_duplex=st.booleans(),
)
def test_the_critical_path_covers_the_latency(
    seconds: list[float], rate: float, window: int | None, full_duplex: bool
) -> None:
    rows = len(seconds)
    nodes = tuple(
        (
            *(Task("first", s) for s in (seconds if node else seconds[::-1])),
            *(Task("second", s, (Arrival(1 - node, 50 * (row + 1)),)) for row, s in enumerate(seconds)),
        )
        for node in (0, 1)
    )
    streams = tuple(Stream(f"{n}", n, 1 - n, tuple(Part(50, r) for r in range(rows)), opened_by=0) for n in (0, 1))
    protocol = Protocol(120, 20, window, 14, 22)
    graph = Graph(nodes, streams, (Link((0, 1), rate, 0.01, 0.001, full_duplex),), protocol)
    result = replay(graph)
    path = result.critical_path()
    assert all(a.end_s == b.start_s for a, b in itertools.pairwise(path))
    assert (path[0].start_s if path else 0.0, path[-1].end_s if path else 0.0) == (0.0, result.latency_s)
    ideal = replay(without_communication(graph)).latency_s
    assert ideal >= max(result.compute_s(node) for node in (0, 1)) - 1e-9
    assert result.latency_s >= ideal - 1e-9
