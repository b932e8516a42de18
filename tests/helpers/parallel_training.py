"""Trains in two processes and writes each one's state dict: `parallel_training.py loop|lightning FOLDER [RANK]`.

Each process would choose other sub-rows on its own, and sees other data.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from lightning_module import Classifier, batches
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from disco_pruning import RandomScore, plan, prune, prune_in_rounds

WORLD = 2


def loop(folder: Path, rank: int) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    model = Classifier().network
    parallel = DistributedDataParallel(model)
    optimiser = torch.optim.SGD(parallel.parameters(), 0.1, momentum=0.9, weight_decay=0.01)

    def finetune(_: torch.nn.Module) -> None:
        for index, (images, labels) in enumerate(batches()):
            if index % WORLD == rank:
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(parallel(images), labels).backward()
                optimiser.step()

    cut = plan(model, torch.zeros(1, 1, 8, 8), 2)
    finetune(model)
    for _ in prune_in_rounds(model, cut, (0.5,), finetune, RandomScore(rank), checkpoints=folder / "rounds"):
        pass
    prune(cut, 0.75, RandomScore(rank))
    finetune(model)
    torch.save(model.state_dict(), folder / f"rank{rank}.pt")
    distributed.barrier()
    os._exit(0)  # gloo's end can wait for ever for a process that has ended already


def lightning(folder: Path) -> None:
    from lightning_module import trainer

    from disco_pruning.lightning import DiscoPruning

    rank = int(os.environ.get("LOCAL_RANK", "0"))  # Lightning starts this script again for rank 1
    module = Classifier()
    callback = DiscoPruning(2, {1: 0.5, 2: 0.75}, score=RandomScore(rank), checkpoints=folder / "rounds")
    trainer(3, callback, devices=WORLD, strategy="ddp").fit(module, batches())
    torch.save(module.network.state_dict(), folder / f"rank{rank}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "loop":
        loop(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        lightning(Path(sys.argv[2]))
