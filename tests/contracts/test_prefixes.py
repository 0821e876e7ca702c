"""Every event from its own past, in one pass: the same vectors as history by history."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from torch.testing import assert_close

from linrec.backbones.prefixes import encode_prefixes, one_pass
from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.splits import Targets
from linrec.evaluation import RankOptions, rank_targets
from linrec.evaluation.scorer import model_scorer
from tests.contracts.cases import (
    BOTH_WAYS,
    CAUSAL_BACKBONES,
    EVERY_ATTENTION,
    WITH_AND_WITHOUT_TIME,
    cycle,
    model,
)


def prefixes() -> Sequences:
    """Each user's history up to each event, whose request is made when the next one comes."""
    rows = cycle(12).sequences()
    return Targets(every=True).hold_out(rows, rows.starts + 1, rows.ends).histories


def shuffled(rows: Sequences) -> Sequences:
    return rows.take(np.random.default_rng(0).permutation(len(rows)))


@CAUSAL_BACKBONES
@EVERY_ATTENTION
@WITH_AND_WITHOUT_TIME
def test_one_pass_is_history_by_history(backbone: str, attention: str, time_gaps: bool) -> None:
    made, rows = model(backbone, attention, time_gaps=time_gaps), shuffled(prefixes())
    read = []
    made.register_forward_pre_hook(lambda _, given: read.append(given[0].numel()))
    found = encode_prefixes(made, rows)
    assert len(read) == 1
    assert read[0] <= 12 * rows.lengths.max(), "each user's history is read once"
    assert_close(found, made.encode(rows))


@CAUSAL_BACKBONES
def test_requests_at_other_times_are_not_one_pass(backbone: str) -> None:
    made, rows = model(backbone, "linrec-decay", time_gaps=True), prefixes()
    assert rows.until is not None
    for until in (None, rows.until + 60.0, np.where(np.arange(len(rows)) == 3, np.nan, rows.until)):
        asked = replace(rows, until=until)
        assert_close(encode_prefixes(made, asked), made.encode(asked))
    timeless = model(backbone, "linrec-decay")
    asked = replace(rows, until=None)
    assert_close(encode_prefixes(timeless, asked), timeless.encode(asked))


@BOTH_WAYS
def test_a_model_that_reads_both_ways_takes_one_history_at_a_time(backbone, objective) -> None:
    made, rows = model(backbone, "linrec", objective=objective), prefixes()
    assert not one_pass(made)
    assert_close(encode_prefixes(made, rows), made.encode(rows))


def test_a_model_that_forgets_takes_one_history_at_a_time() -> None:
    made, rows = model("sasrec", "linrec", max_length=3), prefixes()
    assert not one_pass(made)
    assert_close(encode_prefixes(made, rows), made.encode(rows))


def test_an_empty_history_and_a_batch_of_one() -> None:
    made, rows = model("sasrec", "linrec"), prefixes()
    some = rows.take(np.array([0, 1, 2]))
    empty = replace(some, ends=np.array([some.starts[0], *some.ends[1:]]))
    assert_close(encode_prefixes(made, empty), made.encode(empty))
    assert_close(encode_prefixes(made, rows.take(slice(1))), made.encode(rows.take(slice(1))))


@pytest.mark.parametrize("time_gaps", [False, True])
@pytest.mark.parametrize("limits", [{}, {"max_tokens": 8, "max_scores": 60}])
def test_ranks_of_every_event_are_those_of_single_histories(time_gaps: bool, limits) -> None:
    store, made = cycle(12), model("sasrec", "linrec-decay", time_gaps=time_gaps)
    rows = store.sequences()
    holdout = Targets(every=True).hold_out(rows, rows.starts + 1, rows.ends)
    found = rank_targets(
        model_scorer(made), store, holdout, "full", RankOptions(shares=True, ks=(3,), **limits)
    )
    slow = np.concatenate(
        [
            rank_targets(model_scorer(made), store, one, "full").ranks
            for row in range(len(holdout))
            for one in [
                replace(
                    holdout,
                    users=holdout.users[[row]],
                    histories=holdout.histories.take(np.array([row])),
                    targets=holdout.targets[[row]],
                    at=None,
                )
            ]
        ]
    )
    assert found.ranks.tolist() == slow.tolist()
    assert found.recommended[3].sum() == 3 * len(holdout)
