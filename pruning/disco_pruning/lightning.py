"""DISCO pruning inside a Lightning Trainer, on any number of devices and machines.

trainer = Trainer(callbacks=[DiscoPruning(nodes=2, rounds={20: 0.5, 30: 0.9}, checkpoints="checkpoints")])
trainer.fit(module, data)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from disco_pruning.masks import sub_row_norms
from disco_pruning.planning import plan as make_plan
from disco_pruning.rounds import attach_masks, checkpoint_name, network_sparsity, prune
from disco_pruning.selection import check_rounds
from disco_targets.errors import DiscoError

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise DiscoError("DiscoPruning needs Lightning: pip install 'disco-edge[lightning]'") from error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from disco_pruning.planning import Plan
    from disco_pruning.selection import Ranking, Score, Sparsity
    from disco_pruning.tracing import ExampleInput


class DiscoPruning(Callback):  # type: ignore[misc] # Any to mypy, see pyproject.toml
    """Prunes at the start of given epochs; the epochs in between finetune.

    Masks are put in place before the optimisers are made, so that checkpoints have the same keys before and after
    pruning, and a resumed run goes on with the masks it had. All processes get the masks of rank 0. Logs `s_comm`.
    """

    def __init__(
        self,
        nodes: int,
        rounds: Mapping[int, Sparsity],
        *,
        example_input: ExampleInput | None = None,
        module: str = "",
        shares: Sequence[float] | None = None,
        score: Score = sub_row_norms,
        rank_within: Ranking = "layer",
        checkpoints: str | Path | None = None,
    ) -> None:
        """Takes effect in `Trainer.fit`.

        Args:
            nodes: As for `plan`.
            rounds: Epoch (from 0) to the communication sparsity that it prunes to; rising.
            example_input: As for `plan`; by default the LightningModule's `example_input_array`.
            module: Name of the network within the LightningModule; by default all of it.
            shares: As for `plan`.
            score: As for `prune`.
            rank_within: As for `prune`.
            checkpoints: Folder for a Trainer checkpoint at the end of each round, named as by `prune_in_rounds`:
                `disco_90.0.ckpt` where 90 % were asked for.
        """
        self._nodes = nodes
        self._rounds = dict(sorted(rounds.items()))
        self._example_input = example_input
        self._module = module
        self._shares = shares
        self._score = score
        self._rank_within = rank_within
        self._checkpoints = None if checkpoints is None else Path(checkpoints)
        self._plan: Plan | None = None
        self._sparsity: Sparsity = 0.0

    @property
    def plan(self) -> Plan:
        """The plan of the network, from the start of `Trainer.fit` on.

        Raises:
            DiscoError: It has not started.
        """
        if self._plan is None:
            raise DiscoError("DiscoPruning has no plan before Trainer.fit: read it after, or use disco_pruning.plan")
        return self._plan

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Plan, check the rounds, and put masks in place that prune nothing yet."""
        try:
            network = pl_module.get_submodule(self._module)
        except AttributeError as error:
            raise DiscoError(
                f"{type(pl_module).__name__} has no module '{self._module}': give DiscoPruning the name of its network"
            ) from error
        example = pl_module.example_input_array if self._example_input is None else self._example_input
        if not isinstance(example, Tensor | tuple):
            raise DiscoError(
                "DiscoPruning needs an example input: set example_input_array in the LightningModule, or pass "
                "example_input=torch.zeros(1, channels, height, width)"
            )
        self._plan = make_plan(network, example, self._nodes, self._shares)
        check_rounds(self._plan, self._rounds.values(), rank_within=self._rank_within)
        if stage == "fit":
            self._check_epochs(trainer.max_epochs)
        attach_masks(self._plan)

    def _check_epochs(self, end: int | None) -> None:
        """Raise for a round that never comes; `end` is None or negative where the Trainer knows no last epoch."""
        for epoch in self._rounds:
            if epoch < 0:
                raise DiscoError(f"the round at epoch {epoch} never comes: epochs are counted from 0")
            if end is not None and 0 <= end <= epoch:
                raise DiscoError(
                    f"the round at epoch {epoch} never comes: the Trainer ends after {end} epochs, counted from 0; "
                    "raise max_epochs, or prune earlier"
                )

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Prune if a round starts with this epoch."""
        epoch = trainer.current_epoch
        self._sparsity = next((self._rounds[start] for start in reversed(self._rounds) if start <= epoch), 0.0)
        if epoch in self._rounds:
            prune(self.plan, self._sparsity, self._score, rank_within=self._rank_within)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the sparsity; keep the network if the next epoch prunes it further."""
        pl_module.log("s_comm", network_sparsity(self.plan), sync_dist=False)
        if trainer.current_epoch + 1 in self._rounds:
            self._save(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Keep the network of the last round."""
        self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        if self._checkpoints is not None:
            trainer.save_checkpoint(self._checkpoints / f"{checkpoint_name(self.plan, self._sparsity)}.ckpt")
