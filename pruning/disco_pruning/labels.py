"""Labels: where each element of a traced tensor comes from.

A label is the number of an output channel of some mixing layer. A tensor's labels have the shape of the tensor, so
that reshaping, transposing or concatenating a tensor is done to its labels by the same operator; most axes are
expanded (stride 0) and cost no memory. REPLICATED marks what every node has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

REPLICATED = -1


def filled(shape: Sequence[int], label: int = REPLICATED) -> Tensor:
    """One label for all of `shape`."""
    return torch.tensor(label, dtype=torch.int32).expand(tuple(shape))


def along(vector: Tensor, axis: int, shape: Sequence[int]) -> Tensor:
    """Labels of `shape` that differ along `axis` only."""
    ones = [1] * len(shape)
    ones[axis] = -1
    return vector.reshape(ones).expand(tuple(shape))


def is_replicated(labels: Tensor) -> bool:
    """Whether every node has all of it."""
    return bool((compact(labels) == REPLICATED).all())


def compact(labels: Tensor) -> Tensor:
    """Without the repetition along expanded axes: those become 1 long."""
    for axis, stride in enumerate(labels.stride()):
        if stride == 0 and labels.shape[axis] > 1:
            labels = labels.narrow(axis, 0, 1)
    return labels


def constant_along(labels: Tensor, axes: Iterable[int]) -> bool:
    """Whether the labels do not change along any of `axes`."""
    dense = compact(labels)
    return all(bool((dense == dense.narrow(axis, 0, 1)).all()) for axis in axes)


def joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    """One after the other along `axis`; axes that are expanded in all of them stay so."""
    shape = list(parts[0].shape)
    shape[axis] = -1
    for other in range(len(shape)):
        if other != axis % len(shape) and all(part.stride(other) == 0 for part in parts):
            parts = [part.narrow(other, 0, 1) for part in parts]
    return torch.cat(list(parts), axis).expand(shape)


def rows(labels: Tensor, axis: int) -> Tensor:
    """[size of axis, everything else]: the labels met at each index of `axis`."""
    dense = compact(labels).movedim(axis, 0).flatten(1) if labels.dim() > 1 else labels[:, None]
    return dense.expand(labels.shape[axis], -1)


class Ties:
    """Groups of labels that must be owned by one node (a union-find forest)."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}
        self._reason: dict[int, str] = {}

    def tie(self, labels: Tensor, reason: str) -> None:
        """Put all of `labels` into one group; `reason` names who needs it."""
        found = [label for label in sorted(set(compact(labels).flatten().tolist())) if label != REPLICATED]
        for label in found:
            self._parent[self.root(label)] = self.root(found[0])
        if len(found) > 1:
            self._reason.setdefault(found[0], reason)

    def tie_rows(self, table: Tensor, reason: str) -> None:
        """Tie each row of `table` on its own."""
        for row in table[(table != table[:, :1]).any(1)]:
            self.tie(row, reason)

    def root(self, label: int) -> int:
        """The label that stands for the group of `label`."""
        while (parent := self._parent.get(label, label)) != label:
            self._parent[label] = self._parent.get(parent, parent)
            label = parent
        return label

    def groups(self) -> dict[int, list[int]]:
        """The members of each group, by its root."""
        result: dict[int, list[int]] = {}
        for label in sorted(self._parent):
            result.setdefault(self.root(label), []).append(label)
        return result

    def reason(self, label: int) -> str:
        """Who needs the group of `label`."""
        members = self.groups().get(self.root(label), [])
        return next((self._reason[member] for member in members if member in self._reason), "the network")
