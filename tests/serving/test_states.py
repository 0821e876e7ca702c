"""The compiled form of every backbone and mechanism with a state gives what torch gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from linrec import ops
from linrec.backbones import Backbone
from linrec.backbones.state import tensors_of
from linrec.serving.past import Past
from linrec.serving.snapshot import FINGERPRINT, ROUND, Origin, Snapshot, pack, unpack
from linrec.serving.states import CompiledStates, States, states_of
from tests.contracts.cases import CAUSAL_BACKBONES, CLOCK, LINEAR_ATTENTION, plain_model
from tests.training.cases import N_ITEMS

pytestmark = pytest.mark.skipif(
    ops.kernels().startswith("off"), reason="there is no compiled form without kernels"
)

BLOCKS = pytest.mark.parametrize(
    "block",
    [
        pytest.param({}, id="plain"),
        pytest.param({"time_gaps": True, "head_norm": True}, id="time"),
        pytest.param({"norm": "pre", "gate": True, "head_norm": True, "layers": 4}, id="pre"),
        pytest.param({"norm": "pre", "gate": True, "time_gaps": True, "layers": 1}, id="pre-time"),
        pytest.param({"width": 36, "heads": 3, "inner": 50, "positions": 5}, id="odd"),
        pytest.param({"width": 128, "heads": 8, "inner": 256, "time_gaps": True}, id="large"),
    ],
)


def model(backbone: str, attention: str, **changes: Any) -> Backbone:
    """Weights so large that no difference between events hides."""
    made = plain_model(backbone, attention, **changes).eval()
    with torch.no_grad():
        for module in made.modules():
            if isinstance(module, nn.Linear):
                module.weight.mul_(3)
                if module.bias is not None:
                    module.bias.normal_(std=0.1)
            if isinstance(module, nn.LayerNorm):
                module.weight.normal_(1, 0.1)
                module.bias.normal_(std=0.1)
            if isinstance(module, nn.Embedding):
                module.weight.mul_(10)
    return made


def pasts(lengths: Sequence[int], seed: int) -> list[Past]:
    rng = np.random.default_rng(seed)
    return [
        Past(rng.integers(1, N_ITEMS + 1, n), CLOCK[seed : seed + n].numpy().copy())
        for n in lengths
    ]


def assert_same(made: States, expected: States, users: list[list[Past]]) -> None:
    """users: pieces of history, one list per call, one piece per user."""
    rows = [[states.start] * len(users[0]) for states in (made, expected)]
    for piece in users:
        rows = [
            states.advance(old, piece) for states, old in zip((made, expected), rows, strict=True)
        ]
        at = [float(CLOCK[40 + n]) for n in range(len(piece))]
        hidden = [
            states.hidden(new, at) for states, new in zip((made, expected), rows, strict=True)
        ]
        torch.testing.assert_close(*hidden, rtol=2e-4, atol=2e-4)
    for mine, other in zip(*rows, strict=True):
        leaves = [made._codec.read([row]) for row in (mine, other)]
        torch.testing.assert_close(_leaves(leaves[0]), _leaves(leaves[1]), rtol=2e-4, atol=2e-4,
                                   equal_nan=True)  # fmt: skip


def _leaves(state: Any) -> list[torch.Tensor]:
    return list(tensors_of(state).values())


@BLOCKS
@CAUSAL_BACKBONES
@LINEAR_ATTENTION
def test_it_is_the_torch_form(backbone: str, attention: str, block: dict[str, Any]) -> None:
    made = model(backbone, attention, **block)
    compiled = states_of(made)
    assert isinstance(compiled, CompiledStates)
    with torch.inference_mode():
        # one user and one event at a time, then many of either
        single = [pasts([1], seed) for seed in range(4)]
        several = [pasts([3, 1, 20, 7, 2, 1, 40], 0), pasts([1] * 7, 41), pasts([5] * 7, 9)]
        for users in (single, several):
            assert_same(compiled, states_of(made, compiled=False), users)


def test_wrong_input_is_refused() -> None:
    made = model("sasrec", "linrec-decay")
    states = states_of(made)
    one = pasts([1], 0)
    with pytest.raises(ValueError, match="another size"):
        states.advance([b"too short"], one)
    with pytest.raises(ValueError, match="unknown item"):
        states.advance([states.start], [Past(np.array([N_ITEMS + 1]), np.array([0.0]))])
    with pytest.raises(ValueError, match="one length per user"):
        states.advance([states.start] * 2, one)


def test_without_kernels_and_in_double_precision_there_is_none() -> None:
    made = model("sasrec", "linrec-decay")
    with ops.without_kernels():
        assert not isinstance(states_of(made), CompiledStates)
    assert not isinstance(states_of(made.double()), CompiledStates)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 200])
def test_seen_items_survive_a_record_of_round_size(count: int) -> None:
    seen = np.arange(1, 1 + count, dtype=np.int64) * 3
    origin, fingerprint = Origin("v" * 16, count), b"f" * FINGERPRINT
    content = pack(Snapshot(b"state", seen), origin, fingerprint, 1_000_000)
    found = unpack(content, origin, fingerprint, 5)
    assert found is not None
    np.testing.assert_array_equal(found.seen, seen)
    more = Snapshot(b"state", np.append(seen, 3_000))
    grown = len(pack(more, origin, fingerprint, 1_000_000)) - len(content)
    assert grown == (ROUND if 4 * count % ROUND == 0 else 0)
