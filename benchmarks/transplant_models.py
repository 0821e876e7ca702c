"""One model at one length, before and after: started by benchmarks.transplant, prints JSON.

Needs torch, linrec's source and the model's own framework, nothing else.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import linrec

WIDTH, HEADS, LAYERS, ITEMS = 64, 2, 2, 3_416  # a SASRec's usual sizes, ML-1M's catalogue
ORIGINAL = "original"
HERE = ("encoder",)  # needs no framework but torch

Loss = Callable[[Tensor], Tensor]  # of items [B, N], right-padded with 0


class Encoder(nn.Module):
    """A recommender as people write it around torch.nn.TransformerEncoder."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.item, self.position = nn.Embedding(ITEMS + 1, WIDTH), nn.Embedding(length, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

    def forward(self, items: Tensor) -> Tensor:
        length = items.shape[1]
        x = self.item(items) + self.position(torch.arange(length))
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        hidden: Tensor = self.encoder(x, mask=mask, src_key_padding_mask=items == 0, is_causal=True)
        return hidden


def encoder(length: int) -> tuple[nn.Module, Loss, str]:
    model = Encoder(length)
    return model, lambda items: model(items).square().mean(), f"torch {torch.__version__}"


def recbole(length: int) -> tuple[nn.Module, Loss, str]:
    from recbole import __version__
    from recbole.model.sequential_recommender import SASRec

    class Settings(dict[str, Any]):
        """What a model asks of RecBole's Config, without files."""

        def __getitem__(self, key: str) -> Any:
            return self.get(key)

    class Items:
        def num(self, field: str) -> int:  # noqa: ARG002 - RecBole's signature
            return ITEMS + 1

    settings = Settings(
        USER_ID_FIELD="user", ITEM_ID_FIELD="item", LIST_SUFFIX="_list", NEG_PREFIX="neg_",
        ITEM_LIST_LENGTH_FIELD="length", MAX_ITEM_LIST_LENGTH=length, device="cpu",
        n_layers=LAYERS, n_heads=HEADS, hidden_size=WIDTH, inner_size=4 * WIDTH,
        hidden_dropout_prob=0.0, attn_dropout_prob=0.0, hidden_act="gelu", layer_norm_eps=1e-12,
        initializer_range=0.02, loss_type="CE",
    )  # fmt: skip
    model = SASRec(settings, Items())

    def loss(items: Tensor) -> Tensor:
        out: Tensor = model(items, (items > 0).sum(1))
        return out.square().mean()

    return model, loss, f"RecBole {__version__}"


def bert(length: int) -> tuple[nn.Module, Loss, str]:
    from transformers import BertConfig, BertModel, __version__

    model = BertModel(
        BertConfig(
            vocab_size=ITEMS + 1, hidden_size=WIDTH, num_hidden_layers=LAYERS,
            num_attention_heads=HEADS, intermediate_size=4 * WIDTH, max_position_embeddings=length,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    )  # fmt: skip

    def loss(items: Tensor) -> Tensor:
        out: Tensor = model(items, attention_mask=(items > 0).long()).last_hidden_state
        return out.square().mean()

    return model, loss, f"transformers {__version__}"


MODELS = {"encoder": encoder, "recbole": recbole, "bert": bert}


def batch_of(length: int, events: int) -> Tensor:
    """Half of the rows, or the only one, is padded by a quarter: real batches are ragged."""
    rng = torch.Generator().manual_seed(0)
    items = torch.randint(1, ITEMS + 1, (max(1, events // length), length), generator=rng)
    items[::2, length - length // 4 :] = 0
    return items


def steps_of(model: str, length: int, mechanism: str, items: Tensor) -> tuple[dict[str, Any], str]:
    torch.manual_seed(0)
    module, loss, version = MODELS[model](length)
    if mechanism != ORIGINAL:
        report = linrec.replace_attention(module, mechanism)
        assert len(report.replaced) == LAYERS, str(report)
    optimizer = torch.optim.Adam(module.parameters())

    def train() -> None:
        module.train()
        optimizer.zero_grad()
        loss(items).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def evaluate() -> None:
        module.eval()
        with torch.no_grad():
            loss(items)

    return {"train_ms": train, "eval_ms": evaluate}, version


def in_turns(jobs: dict[Any, Callable[[], None]], repeats: int) -> dict[Any, float]:
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(repeats + 1):  # the first round warms up, and can only be beaten
        for name, job in jobs.items():
            began = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def main() -> None:
    args = _arguments()
    torch.set_num_threads(args.threads)
    items = batch_of(args.length, args.events)
    jobs, version = {}, ""
    for name in args.mechanisms:
        steps, version = steps_of(args.model, args.length, name, items)
        jobs |= {(name, what): job for what, job in steps.items()}
    rows: list[dict[str, Any]] = [
        {"model": args.model, "length": args.length, "mechanism": name} for name in args.mechanisms
    ]
    if args.memory:
        for row in rows:
            row["mib"] = rise(args, items, jobs[row["mechanism"], "train_ms"])
    else:
        best = in_turns(jobs, args.repeats)
        for row in rows:
            row |= {
                what: round(1e3 * best[row["mechanism"], what], 2)
                for what in ("train_ms", "eval_ms")
            }
    print(json.dumps({"versions": {args.model: version}, "rows": rows}))


def rise(args: argparse.Namespace, items: Tensor, step: Callable[[], None]) -> float:
    """MiB by which one training step raises the peak; a step on one event has loaded the code."""
    small, _ = steps_of(args.model, args.length, args.mechanisms[0], items[:1, :8])
    small["train_ms"]()
    before = _peak()
    step()
    return round(_peak() - before, 1)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--mechanisms", nargs="+", required=True)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--memory", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
