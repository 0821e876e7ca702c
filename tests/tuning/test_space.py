"""The search space: what it may contain, and what contains the recipe."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from linrec.backbones.config import CONFIGS as BACKBONES
from linrec.losses.config import CONFIGS as LOSSES
from linrec.ops import MECHANISMS
from linrec.runs.config import parse
from linrec.runs.recipes import recipe, recipe_toml, recipes
from linrec.training.trackers import settings_of_run
from linrec.tuning.defaults import default_space
from linrec.tuning.search import trial_config
from linrec.tuning.space import corners, parse_space, read_space, space_toml
from linrec.types import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "names no setting to search"),
    ({"witdh": {"choices": [8]}}, "unknown setting 'witdh'; choose from backbone"),
    ({"seed": {"choices": [1]}}, "seed must be the same in all trials"),
    ({"split": {"choices": ["last-k"]}}, "unknown setting 'split'"),
    ({"width": 8}, "width must be a table with low and high, or with choices, not 8"),
    ({"width": {"choices": [8.5]}}, "width must be a whole number, not 8.5"),
    ({"width": {"choices": [True]}}, "width must be a whole number, not True"),
    ({"width": {"choices": [0]}}, "width must be at least 1, not 0"),
    ({"width": {"choices": []}}, r"choices must be a list of values, not \[\]"),
    ({"width": {"choices": [8, 8]}}, "repeat a value"),
    ({"width": {"choices": [8], "low": 4}}, "has no use for low; it takes choices"),
    ({"width": {"low": 4, "hihg": 8}}, "has no use for hihg; it takes high, log, low, step"),
    ({"width": {"low": 4}}, "width: high is missing"),
    ({"width": {"low": 8, "high": 4}}, "low 8 is above high 4; exchange them"),
    ({"width": {"low": 4, "high": 8, "step": 0.5}}, "step must be a positive whole number"),
    ({"width": {"low": 4, "high": 8, "log": 1}}, "log must be true or false, not 1"),
    ({"dropout": {"low": 0.0, "high": 1.0}}, "dropout must be at least 0 and below 1, not 1.0"),
    ({"dropout": {"low": 0, "high": 0.5, "log": True}}, "must begin above 0, not at 0.0"),
    ({"dropout": {"low": "a", "high": 0.5}}, "dropout must be a number, not 'a'"),
    ({"learning_rate": {"low": 0.1, "high": 1, "log": True, "step": 0.1}}, "has no step"),
    ({"norm": {"choices": ["post", "behind"]}}, "norm must be 'post' or 'pre', not 'behind'"),
    ({"norm": {"low": 0, "high": 1}}, "norm is no number, so it has no range; give choices"),
    ({"head_norm": {"choices": ["yes"]}}, "head_norm must be true or false, not 'yes'"),
]


@pytest.mark.parametrize(("content", "words"), WRONG)
def test_a_wrong_space_is_one_sentence(content: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        parse_space(content, "space.toml")
    assert str(error.value).startswith("space.toml")


def test_files_that_are_no_space(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the space .*No such file"):
        read_space(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[width\n")
    with pytest.raises(InputError, match="is not valid TOML"):
        read_space(tmp_path / "bad.toml")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("attention", MECHANISMS)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_default_space_contains_the_recipe_and_nothing_impossible(
    backbone: str, attention: str, loss: str
) -> None:
    config = parse({"model": {"backbone": backbone, "attention": attention},
                    "training": {"loss": loss, "seen": "keep"}})  # fmt: skip
    space, values = default_space(config), settings_of_run(config)
    own = {name for name in space if name != "repeat_head"}
    assert [name for name in own if not space[name].contains(values[name])] == []
    assert ("repeat_head" in space) == (backbone != "bert4rec")
    for some in list(corners(space))[::50]:
        trial_config(config, some)
    assert parse_space(tomllib.loads(space_toml(space)), "again") == space


def test_the_default_space_is_of_its_backbone_loss_and_attention() -> None:
    assert "temperature" in default_space(parse({"model": {"backbone": "core"}}))
    assert "mask_ratio" in default_space(parse({"model": {"backbone": "bert4rec"}}))
    assert "calibration" in default_space(parse({"training": {"loss": "gbce"}}))
    assert "repeat_head" not in default_space(parse({"training": {"seen": "hide"}}))
    wide, few = (
        default_space(parse({"model": {"attention": name}})) for name in ("linrec-decay", "softmax")
    )
    assert wide["heads"] != few["heads"]
    assert "width" not in default_space(parse({}), ["width"])


@pytest.mark.parametrize("name", recipes())
def test_a_recipe_is_written_as_it_is_read(name: str, tmp_path: Path) -> None:
    config = recipe(name)
    path = tmp_path / "again.toml"
    path.write_text(recipe_toml(config, 'so "it" says\n'), "utf-8")
    again = recipe(str(path))
    assert again.as_dict() == config.as_dict() | {"description": 'so "it" says\n'}
