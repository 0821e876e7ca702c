"""Cross-entropy over what may be shown: the slow twin masks a row at a time."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linrec.data.dataset.seen import SeenIndex, concatenated_ranges
from linrec.data.dataset.sequences import Sequences
from linrec.losses import full_softmax
from linrec.types import SeenItems


def seen_softmax(
    hidden: Tensor,
    vectors: Tensor,
    targets: Tensor,
    seen: SeenItems | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    return full_softmax(hidden, vectors, targets, bias, seen)


EXACT = [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 2e-2)]


def slow(
    hidden: Tensor, vectors: Tensor, targets: Tensor, seen: SeenItems, bias: Tensor | None = None
) -> Tensor:
    """Target by target: minus the log of its share among the items that may be shown with it."""
    losses = []
    for row, target in enumerate(targets.tolist()):
        begin = int(seen.starts[row])
        past = seen.items[begin : begin + int(seen.counts[row])].tolist()
        shown = [item for item in range(1, len(vectors)) if item == target or item not in past]
        scores = vectors[shown] @ hidden[row] + (0 if bias is None else bias[shown])
        losses.append(-F.log_softmax(scores, 0)[shown.index(target)])
    return torch.stack(losses).mean()


def case(
    n_items: int, lengths: tuple[int, ...], seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, SeenItems]:
    """Users with that many targets each, and some events before the window that holds them."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(1, n_items + 1, 3 + length + 1) for length in lengths]
    histories = Sequences.of([row.tolist() for row in rows])
    inputs = Sequences(histories.items, histories.starts + 3, histories.ends - 1)
    targets = np.concatenate([row[4:] for row in rows])
    torch.manual_seed(seed)
    hidden, vectors = torch.randn(len(targets), 16), torch.randn(n_items + 1, 16) / 2
    seen = SeenIndex.of(histories).before(concatenated_ranges(inputs.starts + 1, inputs.lengths))
    return hidden, vectors, torch.from_numpy(targets), seen


def assert_equal_with_gradients(
    given: list[Tensor], wanted: list[Tensor], losses: tuple[Tensor, Tensor], tolerance: float
) -> None:
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(
        losses[0].double(), losses[1].double(), rtol=tolerance, atol=tolerance
    )
    for found, right in zip(given, wanted, strict=True):
        scale = right.grad.abs().max().item()
        torch.testing.assert_close(
            found.grad.double(), right.grad.double(), rtol=tolerance, atol=tolerance * scale + 1e-7
        )


@pytest.fixture(params=[1, 7, 10_000], ids="{} rows per chunk".format)
def _any_chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that cut a user, chunks that leave a remainder, and all rows at once."""
    home = import_module("linrec.losses.softmax")
    monkeypatch.setattr(home, "_chunk_rows", lambda *_: request.param)


@pytest.mark.usefixtures("_any_chunks")
@pytest.mark.parametrize(("dtype", "tolerance"), EXACT)
@pytest.mark.parametrize("lengths", [(1,), (5,), (1, 17, 8), (33,)])
@pytest.mark.parametrize("n_items", [2, 9, 300])
def test_it_equals_its_slow_twin(n_items, lengths, dtype, tolerance) -> None:
    hidden, vectors, targets, seen = case(n_items, lengths)
    exact = [x.to(dtype).double() for x in (hidden, vectors)]
    wide = torch.promote_types(dtype, torch.float32)
    given = [exact[0].to(dtype).requires_grad_(), exact[1].to(wide).requires_grad_()]
    wanted = [x.detach().clone().requires_grad_() for x in exact]
    losses = seen_softmax(*given, targets, seen), slow(*wanted, targets, seen)
    assert losses[0].dtype == wide
    assert_equal_with_gradients(given, wanted, losses, tolerance)


@pytest.mark.usefixtures("_any_chunks")
@pytest.mark.parametrize(("dtype", "tolerance"), EXACT[1:])
def test_with_a_bias_it_equals_its_slow_twin(dtype, tolerance) -> None:
    hidden, vectors, targets, seen = case(40, (6, 11))
    exact = [x.to(dtype).double() for x in (hidden, vectors, torch.randn(41))]
    given = [exact[0].to(dtype).requires_grad_(), *(x.float().requires_grad_() for x in exact[1:])]
    wanted = [x.detach().clone().requires_grad_() for x in exact]
    losses = (
        seen_softmax(*given[:2], targets, seen, given[2]),
        slow(*wanted[:2], targets, seen, wanted[2]),
    )
    assert_equal_with_gradients(given, wanted, losses, tolerance)


def test_the_usual_chunks_change_nothing() -> None:
    """More targets than fit into one chunk of a catalogue of this size."""
    hidden, vectors, targets, seen = case(20_000, (70, 5, 60))
    expected = slow(hidden.double(), vectors.double(), targets, seen)
    torch.testing.assert_close(seen_softmax(hidden, vectors, targets, seen), expected.float())


def test_without_seen_items_it_is_the_full_softmax() -> None:
    hidden, vectors, targets, _ = case(300, (20, 9))
    given, wanted = ([x.clone().requires_grad_() for x in (hidden, vectors)] for _ in range(2))
    losses = seen_softmax(*given, targets), full_softmax(*wanted, targets)
    assert_equal_with_gradients(given, wanted, losses, 1e-6)


def test_a_seen_item_gets_no_gradient_and_changes_nothing() -> None:
    vectors = torch.randn(6, 4).requires_grad_()
    hidden, target = torch.randn(1, 4), torch.tensor([4])
    seen = SeenItems(torch.tensor([2, 5]), torch.tensor([0]), torch.tensor([2]))
    loss = seen_softmax(hidden, vectors, target, seen)
    loss.backward()
    assert vectors.grad[[0, 2, 5]].abs().sum() < 1e-30  # the smallest exponential of the kernels
    assert vectors.grad[[1, 3, 4]].abs().min() > 0
    louder = vectors.detach().clone()
    louder[[2, 5]] *= 1000
    assert torch.equal(seen_softmax(hidden, louder, target, seen), loss.detach())


def test_a_target_that_was_seen_still_counts() -> None:
    hidden, vectors, target = torch.randn(1, 4), torch.randn(4, 4), torch.tensor([2])
    seen = SeenItems(torch.tensor([1, 2, 3]), torch.tensor([0]), torch.tensor([3]))
    assert seen_softmax(hidden, vectors, target, seen) == 0  # nothing else may be shown


def test_no_target_no_loss() -> None:
    hidden = torch.randn(0, 4).requires_grad_()
    loss = seen_softmax(hidden, torch.randn(4, 4), torch.zeros(0, dtype=torch.int64))
    loss.backward()
    assert loss == 0
    assert hidden.grad.shape == (0, 4)
