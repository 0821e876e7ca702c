"""What the runners share: a slice of real histories, and the laws a converted model must keep.

A runner is started with the python of its framework's environment, linrec's source on the path and
the folder of real data as its argument. It prints one JSON object, which the tests read.
"""

from __future__ import annotations

import copy
import gzip
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import linrec

USERS, ITEMS, EVENTS = 80, 200, 20  # of the real data: few enough for a step in milliseconds
STEPS, RATE = 40, 5e-3
# what a history is, and what its model says of each of its events, padded to a width
Encode = Callable[[nn.Module, list[list[int]], int], list[Tensor]]


def histories(folder: Path) -> tuple[list[list[int]], list[str]]:
    """The last events of some users, oldest first, items counted from 1; and the items' ids."""
    with gzip.open(folder / "ml-latest-small" / "ml-latest-small.inter.gz", "rt") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    frequent = {item for item, _ in Counter(row[1] for row in rows).most_common(ITEMS)}
    users: dict[str, list[str]] = {}
    for user, item, _, _ in sorted(rows, key=lambda row: float(row[3])):  # equal times: file order
        if item in frequent:
            users.setdefault(user, []).append(item)
    several = [events for events in users.values() if len(events) >= 6][:USERS]
    some = [events[-(6 + at % (EVENTS - 6)) :] for at, events in enumerate(several)]
    ids = sorted({item for events in some for item in events})
    number = {item: index for index, item in enumerate(ids, start=1)}
    return [[number[item] for item in events] for events in some], ids


def count_items(some: list[list[int]]) -> int:
    return max(map(max, some))


def examine(
    model: nn.Module, encode: Encode, some: list[list[int]], **options: Any
) -> dict[str, Any]:
    """The laws, on a copy with softmax against the original and on the model itself, converted."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    expected = evaluated(encode, model, some, EVENTS)
    twin = copy.deepcopy(model)
    linrec.replace_attention(twin, "softmax")
    softmax = evaluated(encode, twin, some, EVENTS)
    report = linrec.replace_attention(model, **options)
    linear = evaluated(encode, model, some, EVENTS)
    after = model.state_dict()
    model.load_state_dict(before)  # strictly: the original's checkpoints still load
    return {
        "replaced": dict(report.replaced),
        "skipped": dict(report.skipped),
        "weights_kept": all(torch.equal(after[name], value) for name, value in before.items()),
        "new_weights": sorted({name.rpartition(".")[2] for name in after.keys() - before.keys()}),
        "softmax_error": error(softmax, expected),
        "linear_change": error(linear, expected),
    }


def laws(model: nn.Module, encode: Encode, some: list[list[int]]) -> dict[str, float]:
    """How much padding, batch mates and the future change; all relative to the outputs."""
    whole = evaluated(encode, model, some, EVENTS)
    longest = max(map(len, some))
    tight = evaluated(encode, model, some, longest)
    alone = [evaluated(encode, model, [events], len(events))[0] for events in some[:8]]
    cut = 4
    other = [
        events[:cut] + [1 + item % count_items(some) for item in events[cut:]] for events in some
    ]
    changed = evaluated(encode, model, other, EVENTS)
    return {
        "padding_error": max(error(tight, whole), error(alone, whole[:8])),
        "future_error": error([x[:cut] for x in changed], [x[:cut] for x in whole]),
        "past_change": error([x[cut:] for x in changed], [x[cut:] for x in whole]),
    }


def evaluated(encode: Encode, model: nn.Module, some: list[list[int]], width: int) -> list[Tensor]:
    model.eval()
    with torch.no_grad():
        return encode(model, some, width)


def error(result: list[Tensor], expected: list[Tensor]) -> float:
    scale = max(float(x.abs().max()) for x in expected)
    return max(float((a - b).abs().max()) for a, b in zip(result, expected, strict=True)) / scale


def descend(model: nn.Module, loss: Callable[[], Tensor]) -> list[float]:
    """Losses of some steps of Adam in training mode."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(float(value))
    return losses


def padded(
    some: list[list[int]], width: int, *, at_the_start: bool = False, pad: int = 0
) -> Tensor:
    rows = [
        [pad] * (width - len(row)) + row if at_the_start else row + [pad] * (width - len(row))
        for row in some
    ]
    return torch.tensor(rows)


def finish(result: dict[str, Any]) -> None:
    rooms = {name.split(".")[1] for name in sys.modules if name.startswith("linrec.")}
    print(json.dumps(result | {"rooms": sorted(rooms), "torch": torch.__version__.split("+")[0]}))


def data() -> Path:
    return Path(sys.argv[1])


def start() -> list[list[int]]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return histories(data())[0]
