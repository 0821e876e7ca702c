"""Training reaches every parameter: none is carried along for nothing."""

from __future__ import annotations

from typing import Any

from linrec.data.dataset.splits import leave_one_out
from linrec.losses import full_softmax
from linrec.runs.config import RunConfig
from linrec.training.loop import epoch_batches
from tests.contracts.cases import EVERY_ATTENTION, EVERY_BLOCK, EVERY_WAY, cycle, model

# what does nothing has the rounding error of a double for a gradient; the others are far above
NOTHING = 1e-12

# core's stack only weighs: what its last norm adds to every position alike, a softmax does not see
LAST_NORM = {"post": "stack.blocks.1.feed_forward_norm.bias", "pre": "stack.final_norm.bias"}


@EVERY_BLOCK
@EVERY_WAY
@EVERY_ATTENTION
def test_a_gradient_reaches_every_parameter(
    backbone: str, objective: str, attention: str, block: dict[str, Any]
) -> None:
    learner = model(backbone, attention, objective=objective, **block)
    split = leave_one_out(cycle().sequences())
    batch = epoch_batches(learner, split, RunConfig(model=learner.config), 0)[0]
    hidden = learner(*batch.events)
    loss = full_softmax(hidden, learner.item_vectors(), batch.targets, learner.item_bias())
    assert loss.isfinite()
    loss.backward()
    reached = {
        name: 0.0 if value.grad is None else value.grad.abs().max().item()
        for name, value in learner.named_parameters()
    }
    dead = {name for name, size in reached.items() if not size > NOTHING}
    assert dead == ({LAST_NORM[learner.config.norm]} if backbone == "core" else set())
    assert all(value.grad.isfinite().all() for value in learner.parameters())
