"""Settings from recipes, flags and keywords: checked at birth, and refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from linrec.recommender import Recommender
from linrec.runs.config import RunConfig, parse
from linrec.runs.recipes import recipe, recipes
from linrec.types import InputError


def test_shipped_recipes_are_whole() -> None:
    found = recipes()
    assert {"default", "small", "paper-ml-1m", "paper-gowalla"} <= found.keys()
    assert all(config.description for config in found.values())
    default = found["default"]
    assert (default.model.head_norm, default.model.time_gaps) == (True, True)
    assert default.loss.seen_aware
    assert default.model.max_length is None
    whole, last = found["ml-1m"], found["ml-1m-last-200"]
    assert (whole.model.max_length, last.model.max_length) == (None, 200)
    decided = {"model": {"repeat_head": "off"}, "training": {"seen": "hide"}}
    assert whole.as_dict() == _merged(default.as_dict(), decided, whole.description)
    short = {"model": {"max_length": 200, "positions": 200}}
    assert last.as_dict() == _merged(whole.as_dict(), short, last.description)
    paper = found["paper-ml-1m"]
    assert (paper.model.width, paper.model.max_length, paper.window) == (128, 200, 200)


def _merged(
    content: dict[str, Any], changes: dict[str, dict[str, Any]], description: str
) -> dict[str, Any]:
    changed = {part: content[part] | values for part, values in changes.items()}
    return content | changed | {"description": description}


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[model]\nwidth = 32\nheads = 2\n[training]\nepochs = 3\n")
    found = recipe(str(path))
    assert (found.model.width, found.training.epochs) == (32, 3)
    assert found.model.layers == RunConfig().model.layers
    changed = Recommender(recipe=str(path), width=64)
    assert (changed.config.model.width, changed.config.training.epochs) == (64, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[model]\nwidht = 32", r"unknown setting 'widht' in \[model\]; choose from backbone, "),
        ("[train]\nepochs = 3", "unknown setting 'train'; choose from model, training, descr"),
        ("width = 32", "unknown setting 'width'; choose from model, training"),
        ("[training]\nepochs = 'many'", "epochs must be a valid integer, not 'many'$"),
        ("[training]\nepochs = 2.5", "epochs must be a valid integer.*, not 2.5$"),
        ("[training]\nprecision = 'fp8'", "must be 'float32', 'bfloat16' or 'auto', not 'fp8'$"),
        ("[model]\nnorm = 'both'", "norm must be 'post' or 'pre', not 'both'$"),
        ("[model]\nwidth = 100\nheads = 3", "width 100 must be a multiple of heads 3"),
        ("[model]\nattention = 'flash'", "unknown attention 'flash'; choose from softmax"),
        ("model = 3", "model must be .*, not 3$"),
        ("[model", "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
    ],
)
def test_what_is_wrong_in_a_recipe_is_named(content, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError, match=f"mine.toml.*{message}") as refused:
        recipe(str(path))
    assert "\n" not in str(refused.value)


def test_a_recipe_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read recipe .*none\.toml: No such file"):
        recipe(str(tmp_path / "none.toml"))
    with pytest.raises(InputError, match="unknown recipe 'fast'; choose from bert4rec, d"):
        recipe("fast")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"widht": 3}, "^unknown setting 'widht'; choose from backbone"),
        ({"precision": "fp8"}, "^precision must be 'float32', 'bfloat16' or 'auto', not 'fp8'$"),
        ({"objective": "x"}, "^objective must be 'all-positions', .* or 'cloze', not 'x'$"),
        ({"mask_ratio": 0.5}, "^the backbone sasrec has no use for mask_ratio; leave mask_ratio="),
        ({"epochs": "ten"}, "^epochs must be a valid integer, not 'ten'$"),
        ({"epochs": 0}, "^epochs=0 must be at least 1$"),
        ({"patience": 0}, "^patience=0 must be at least 1"),
        ({"window": 0}, "^window=0 must be at least 1"),
        ({"batch_tokens": -5}, "^batch_tokens=-5 must be at least 1"),
        ({"learning_rate": 0}, "^learning_rate=0.0 must be positive"),
        ({"learning_rate": float("nan")}, "^learning_rate=nan must be positive"),
        ({"weight_decay": -1}, "^weight_decay=-1.0 must be at least 0"),
        ({"seed": -1}, "^seed=-1 must be at least 0"),
        ({"seed": 2**63}, "^seed=9223372036854775808 must be at least 0 and below"),
        ({"heads": 3}, "^width 128 must be a multiple of heads 3; try heads=[24]"),
        ({"dropout": 1}, "^dropout=1.0 must be at least 0 and below 1$"),
    ],
)
def test_what_is_wrong_in_a_call_is_named(settings, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        Recommender(**settings)
    assert "\n" not in str(refused.value)


def test_numbers_may_come_as_text() -> None:
    """As a TOML file or an environment may have them."""
    assert parse({"model": {"width": "64"}}).model.width == 64
