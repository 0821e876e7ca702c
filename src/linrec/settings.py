"""A setting is written once: its default, its help text and what it may be.

Validation, error messages, flags and recipes are all derived from the fields that `setting`
makes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import lru_cache
from numbers import Integral
from typing import Any, TypeVar, cast

from linrec.types import InputError, argument
from linrec.validation import explain

Config = TypeVar("Config")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is known of a setting besides its name, type and default."""

    help: str
    group: str | None = None  # heading under which the help of a command lists it
    min: float | None = None
    max: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()

    def allows(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if not isinstance(value, int | float):
            return True
        return (
            math.isfinite(value)
            and (self.min is None or value >= self.min)
            and (self.max is None or value <= self.max)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    @property
    def expected(self) -> str:
        """What it must be, in words."""
        if self.choices:
            return either([repr(choice) for choice in self.choices])
        if self.min is not None and self.max is not None:
            return f"from {self.min} to {self.max}"
        if self.above == 0 and self.max is None and self.below is None:
            return "positive"
        bounds = {"at least": self.min, "above": self.above, "at most": self.max,
                  "below": self.below}  # fmt: skip
        words = [f"{word} {bound}" for word, bound in bounds.items() if bound is not None]
        return " and ".join(words) or "a finite number"


def setting(default: Any, help: str, **rest: Any) -> Any:
    """A dataclass field with its help text and what it may be (the fields of `Setting`)."""
    return field(default=default, metadata={"setting": Setting(help=help, **rest)})


def override(config: Any, name: str, default: Any) -> Any:
    """A setting of `config` for a subclass that has another default."""
    (item,) = (item for item in fields(config) if item.name == name)
    return field(default=default, metadata=item.metadata)


def setting_of(item: Field[Any]) -> Setting | None:
    return item.metadata.get("setting")


def settings_of(config: Any) -> dict[str, Field[Any]]:
    """The settings of a dataclass by name; fields not made with `setting` are left out."""
    return {item.name: item for item in fields(config) if setting_of(item) is not None}


def kinds(item: Field[Any]) -> list[str]:
    """The names of the types that a setting takes."""
    named = item.type.__name__ if isinstance(item.type, type) else str(item.type)
    return named.split(" | ")


def check(config: Any) -> None:
    """Refuse a config with a value out of bounds."""
    for name, item in settings_of(config).items():
        value, rule = getattr(config, name), item.metadata["setting"]
        if value is None:
            continue
        whole = "int" in kinds(item) and "float" not in kinds(item)
        if whole and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise InputError(f"{argument(name, repr(value))} must be a whole number")
        if set(kinds(item)) <= {"str", "None"} and not isinstance(value, str):
            raise InputError(f"{argument(name, repr(value))} must be text")
        if not rule.allows(value):
            raise InputError(f"{argument(name, value)} must be {rule.expected}")


def parse(kind: type[Config], content: Mapping[str, Any]) -> Config:
    """A config from what a file, a call or the command line gave."""
    from pydantic import ValidationError

    try:
        config: Config = _adapter(cast(Any, kind)).validate_python(dict(content))
    except ValidationError as error:
        raise InputError(explain(error)) from None
    return config


def choose(key: str, family: Mapping[str, type[Config]], content: Mapping[str, Any]) -> Config:
    """The config of the family that `content[key]` names, the first one if it names none.

    None stands for the default. A setting that the chosen config lacks is refused with the names
    of those that have it.
    """
    given = {name: value for name, value in content.items() if value is not None}
    chosen = given.setdefault(key, next(iter(family)))
    if not isinstance(chosen, str) or chosen not in family:
        raise InputError(f"unknown {key} {chosen!r}; choose from {', '.join(family)}")
    known = settings_of(family[chosen])
    for name in given:
        if name not in known:
            raise InputError(_lacks(key, chosen, name, family))
    return parse(family[chosen], given)


def either(options: Sequence[str]) -> str:
    """Some options in words: `a, b or c`."""
    *first, last = options
    return f"{', '.join(first)} or {last}" if first else last


def _lacks(key: str, chosen: str, name: str, family: Mapping[str, Any]) -> str:
    owners = [other for other, config in family.items() if name in settings_of(config)]
    if not owners:
        known = ", ".join(settings_of(family[chosen]))
        return f"unknown setting {name!r} of the {key} {chosen}; choose from {known}"
    others = either([argument(key, owner) for owner in owners])
    return (
        f"the {key} {chosen} has no use for {name}; leave {argument(name)} out, or choose {others}"
    )


@lru_cache(maxsize=64)
def _adapter(kind: type[Any]) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
