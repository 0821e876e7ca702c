"""What a model is: everything needed to build it again around its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, ValidationError

from linrec.types import InputError

Objective = Literal["all-positions", "last-position", "cloze"]


def described(default: Any, help: str, *, unset: str = "", own: bool = False) -> Any:
    """A setting with its line of help.

    unset: what None stands for. own: only some backbones or losses have it (their `own_settings`).
    """
    return field(default=default, metadata={"help": help, "unset": unset, "own": own})


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Defaults are the product's: whole histories, linrec-decay, every position trained at once."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    backbone: str = described(
        "sasrec", "The Transformer: sasrec, bert4rec, core or any other of linrec.backbones."
    )
    attention: str = described(
        "linrec-decay", "The mechanism: softmax, linrec, linrec-decay or any other of linrec.ops."
    )
    objective: Objective | None = described(  # noqa: RUF009 - a field, as all the others
        None,
        "Train all positions at once (causal), the last of each prefix, or masked ones.",
        unset="the backbone's own",
    )
    features: tuple[str, ...] | str | None = described(
        None,
        "Item features to read, as genre,year (sasrecf, fdsa); `linrec describe` lists them.",
        unset="all",
        own=True,
    )
    mask_ratio: float | None = described(
        None, "Share of events masked, beside the last one (bert4rec).", unset="0.2", own=True
    )
    temperature: float | None = described(
        None, "What cosines are divided by (core).", unset="0.07", own=True
    )
    width: int = described(128, "Numbers in each vector.")
    heads: int = described(8, "Attention heads; must divide the width.")
    layers: int = described(2, "Transformer blocks.")
    inner: int = described(256, "Numbers inside each feed-forward.")
    dropout: float = described(0.2, "Share of numbers dropped in training.")
    norm: Literal["post", "pre"] = described(
        "post", "LayerNorm after each sum, or before each part."
    )
    positions: int = described(256, "Learned positions; later events share the last one.")
    max_length: int | None = described(
        None, "Read only the newest events of a history (0: all).", unset="all"
    )

    def __post_init__(self) -> None:
        if self.max_length == 0:  # a flag cannot say None
            object.__setattr__(self, "max_length", None)
        from linrec.ops import find  # here, so that the settings can be listed without torch

        find(self.attention)
        for name in ("width", "heads", "layers", "inner", "positions"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.width % self.heads:
            raise InputError(
                f"width {self.width} must be a multiple of heads {self.heads}; "
                f"try --heads {_nearest_divisor(self.width, self.heads)}"
            )
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must be at least 0 and below 1, not {self.dropout}")
        if self.features is not None:
            object.__setattr__(self, "features", _names(self.features))
        if self.mask_ratio is not None and not 0 <= self.mask_ratio < 1:
            raise InputError(f"mask_ratio must be at least 0 and below 1, not {self.mask_ratio}")
        if self.temperature is not None and not 0 < self.temperature < float("inf"):
            raise InputError(f"temperature must be positive, not {self.temperature}")
        if self.max_length is not None and self.max_length < 1:
            raise InputError(f"max_length must be at least 1 or left out, not {self.max_length}")

    @property
    def causal(self) -> bool:
        """All positions can only be trained at once if none sees its own future."""
        return self.objective == "all-positions"


OWN_SETTINGS = tuple(item.name for item in fields(ModelConfig) if item.metadata["own"])
"""Settings that only some backbones have; None elsewhere, and before the backbone filled it in."""


def complaint(error: ValidationError, parts: Mapping[str, type[Any]]) -> str:
    """The first thing pydantic found wrong, in words for whoever wrote the setting.

    parts: the settings classes by the name of the part that holds them, "" for the whole.
    """
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):  # the class had a sentence of its own
        return str(cause)
    told = _of_several_kinds(first["loc"], parts)
    if told is not None:
        return f"{told}; not {first['input']!r:.60}"
    *within, name = [str(part) for part in first["loc"]] or ["the content"]
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        part = parts.get(within[-1] if within else "")
        known = ", ".join(item.name for item in fields(part)) if part else ""
        where = f" in [{within[-1]}]" if within else ""
        return f"unknown setting {name!r}{where}" + (f"; choose from {known}" if known else "")
    if first["type"] == "missing":
        return f"{name} is missing"
    begin, _, wanted = first["msg"].partition("Input should be ")
    if begin:
        return f"{name}: {begin}"
    given = repr(first["input"])
    return f"{name} must be {wanted.split(', unable to')[0]}, not {given[:60]}"


def _of_several_kinds(place: tuple[int | str, ...], parts: Mapping[str, type[Any]]) -> str | None:
    """What a setting that takes more than one type is, where pydantic names its own types."""
    for part in parts.values():
        for item in fields(part):
            if item.name in place[:-1] and "help" in item.metadata:
                return f"{item.name}: {item.metadata['help']}"
    return None


def _names(given: tuple[str, ...] | str) -> tuple[str, ...]:
    listed = given.split(",") if isinstance(given, str) else given
    names = tuple(name.strip() for name in listed if name.strip())
    if not names:
        raise InputError("features names none; give them as genre,year or leave it out for all")
    return names


def _nearest_divisor(width: int, heads: int) -> int:
    divisors = [n for n in range(1, width + 1) if width % n == 0]
    return min(divisors, key=lambda n: abs(n - heads))
