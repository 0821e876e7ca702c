"""A trained model as a scorer: histories in, scores of all items out."""

from __future__ import annotations

import torch
from torch import Tensor

from linrec.backbones import Backbone
from linrec.backbones.prefixes import encode_prefixes
from linrec.baselines import Baseline
from linrec.data.dataset.past_counts import counts_of
from linrec.data.dataset.sequences import Sequences
from linrec.evaluation.ranks import Scorer
from linrec.scoring import add_repeats, item_scores


def model_scorer(model: Backbone | Baseline) -> Scorer:
    """Score with the model in evaluation mode: dropout would give equal histories other scores."""
    model.eval()
    if isinstance(model, Baseline):
        return model
    with torch.no_grad():  # once: some backbones compute them from their weights
        vectors, bias = model.item_vectors(), model.shown_bias()

    def score(histories: Sequences) -> Tensor:
        hidden = encode_prefixes(model, histories)
        scores = item_scores(hidden, vectors, bias)
        if model.repeat is not None:
            past = counts_of(histories, model.config.time_gaps).to(model.device)
            scores = add_repeats(scores, model.repeat(hidden.float()), past)
        return scores

    return score
