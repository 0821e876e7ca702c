"""The search space: for each setting a range or some choices, from a TOML file or a mapping."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import Field, asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from linrec.backbones.config import CONFIGS as MODEL_CONFIGS
from linrec.files.toml import toml_table
from linrec.losses.config import CONFIGS as LOSS_CONFIGS
from linrec.runs.config import TrainingConfig
from linrec.settings import kinds, setting_of, settings_of
from linrec.types import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIXED = ("seed", "device", "precision", "compile", "final", "seen", "epochs", "patience")
"""Settings that are the same in all trials: where and how long they run, what is measured."""
MOST_COMBINATIONS = 2000  # of the ends of all ranges and choices that are checked before a start

Space = Mapping[str, "Range | Choice"]
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Range:
    low: float
    high: float
    log: bool = False
    step: float | None = None

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int)

    @property
    def ends(self) -> list[Any]:
        return [self.low, self.high]

    def contains(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not self.low <= value <= self.high:
            return False
        steps = 0.0 if self.step is None else (value - self.low) / self.step
        return abs(steps - round(steps)) < 1e-8

    def as_dict(self) -> dict[str, Any]:
        known = asdict(self)
        return {key: value for key, value in known.items() if value not in (None, False)} | {
            "low": self.low,
            "high": self.high,
        }


@dataclass(frozen=True)
class Choice:
    choices: tuple[Any, ...]

    @property
    def ends(self) -> list[Any]:
        return list(self.choices)

    def contains(self, value: Any) -> bool:
        return any(value == choice and type(value) is type(choice) for choice in self.choices)

    def as_dict(self) -> dict[str, Any]:
        return {"choices": list(self.choices)}


def tunable() -> dict[str, Field[Any]]:
    """Every setting that may be searched; of one that several have, the first."""
    found: dict[str, Field[Any]] = {}
    for config in (*MODEL_CONFIGS.values(), *LOSS_CONFIGS.values(), TrainingConfig):
        for name, item in settings_of(config).items():
            if name not in FIXED:
                found.setdefault(name, item)
    return found


def read_space(given: str | Path | Mapping[str, Any]) -> Space:
    """The space of a TOML file, or of what such a file contains."""
    if isinstance(given, Mapping):
        return parse_space(given, "the space")
    try:
        content = tomllib.loads(Path(given).read_bytes().decode())
    except OSError as error:
        raise InputError(f"cannot read the space {given}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"the space {given} is not valid TOML: {error}") from error
    return parse_space(content, str(given))


def parse_space(content: Mapping[str, Any], source: str) -> Space:
    if not content:
        raise InputError(f"{source} names no setting to search; `--print-space` shows a default")
    known = tunable()
    for name in content:
        if name in FIXED:
            raise InputError(
                f"{source}: {name} must be the same in all trials and cannot be searched; leave "
                "it out, or give it as a setting"
            )
        if name not in known:
            raise InputError(f"{source}: unknown setting {name!r}; choose from {', '.join(known)}")
    return {
        name: _parse(value, known[name], f"{source}: {name}") for name, value in content.items()
    }


def _parse(given: Any, item: Field[Any], where: str) -> Range | Choice:
    if not isinstance(given, Mapping):
        raise InputError(
            f"{where} must be a table with low and high, or with choices, not {given!r}"
        )
    keys = {"choices"} if "choices" in given else {"low", "high", "log", "step"}
    for key in given:
        if key not in keys:
            raise InputError(f"{where} has no use for {key}; it takes {', '.join(sorted(keys))}")
    if "choices" in given:
        return _choice(given["choices"], item, where)
    return _range(given, item, where)


def _choice(given: Any, item: Field[Any], where: str) -> Choice:
    if not isinstance(given, list | tuple) or not given:
        raise InputError(f"{where}: choices must be a list of values, not {given!r}")
    values = tuple(_checked(value, item, where) for value in given)
    if len(set(values)) < len(values):
        raise InputError(f"{where}: the choices {list(given)} repeat a value; give each once")
    return Choice(values)


def _range(given: Mapping[str, Any], item: Field[Any], where: str) -> Range:
    types = kinds(item)
    if not {"int", "float"} & set(types):
        raise InputError(f"{where} is no number, so it has no range; give choices")
    for key in ("low", "high"):
        if key not in given:
            raise InputError(f"{where}: {key} is missing")
    low, high = (_checked(given[key], item, where) for key in ("low", "high"))
    log, step = given.get("log", False), given.get("step")
    if not isinstance(log, bool):
        raise InputError(f"{where}: log must be true or false, not {log!r}")
    if low > high:
        raise InputError(f"{where}: low {low} is above high {high}; exchange them")
    if log and low <= 0:
        raise InputError(f"{where}: a logarithmic range must begin above 0, not at {low}")
    if step is None:
        return Range(low, high, log)
    number = isinstance(step, int if isinstance(low, int) else int | float)
    if not number or isinstance(step, bool) or step <= 0:
        kind = "whole number" if isinstance(low, int) else "number"
        raise InputError(f"{where}: step must be a positive {kind}, not {step!r}")
    if log:
        raise InputError(f"{where}: a logarithmic range has no step; leave log or step out")
    return Range(low, high, log, type(low)(step))


def _checked(value: Any, item: Field[Any], where: str) -> Any:
    """The value, if it is of the setting's type and allowed."""
    rule, types = setting_of(item), kinds(item)
    assert rule is not None
    if "float" in types and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    expected, kind = next(
        (pair for name, pair in _TYPES.items() if name in types), ("a string", str)
    )
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InputError(f"{where} must be {expected}, not {value!r}")
    if not rule.allows(value):
        raise InputError(f"{where} must be {rule.expected}, not {value!r}")
    return value


_TYPES: dict[str, tuple[str, type]] = {
    "float": ("a number", float),
    "int": ("a whole number", int),
    "bool": ("true or false", bool),
}


def as_content(space: Space) -> dict[str, Any]:
    """As a TOML file has it."""
    return {name: part.as_dict() for name, part in space.items()}


def space_toml(space: Space) -> str:
    return "\n".join(toml_table(name, part) for name, part in as_content(space).items())


def corners(space: Space, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Combinations of the ends of all ranges and choices: all of them, or a sample of many."""
    ends = [part.ends for part in space.values()]
    if np.prod([float(len(each)) for each in ends]) <= MOST_COMBINATIONS:
        for values in product(*ends):
            yield dict(zip(space, values, strict=True))
        return
    rng = np.random.default_rng(seed)
    for _ in range(MOST_COMBINATIONS):
        values = tuple(each[rng.integers(len(each))] for each in ends)
        yield dict(zip(space, values, strict=True))
