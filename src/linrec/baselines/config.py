"""The settings of each baseline; those left open are chosen on the validation events.

They are apart from the baselines so that the help of `linrec train` can list them without torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pydantic import ConfigDict

from linrec.settings import check, override, setting

LIMITS = {"item-knn": 200_000, "ease": 10_000}
"""Items up to which a baseline fits in memory: `ease` keeps a weight for each pair of them."""


Grids = dict[str, tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class BaselineConfig:
    """A baseline has no layers, loss or epochs, so it has none of their settings."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    max_length: ClassVar[int | None] = None  # it reads whole histories
    time_gaps: ClassVar[bool] = False
    grids: ClassVar[Grids] = {}
    """What to try for a setting that is left open; the first is taken where nothing decides."""

    backbone: str = setting("popularity", "Baseline that counts events.")

    def __post_init__(self) -> None:
        check(self)

    @property
    def open(self) -> list[str]:
        """The settings that are left to the validation events."""
        return [name for name in self.grids if getattr(self, name) is None]

    def complete(self) -> BaselineConfig:
        """The first of the grid for each setting that is left open."""
        first: dict[str, Any] = {name: self.grids[name][0] for name in self.open}
        return replace(self, **first)

    def variants(self, name: str) -> list[BaselineConfig]:
        """One config for each value that is tried for a setting."""
        tried: list[dict[str, Any]] = [{name: value} for value in self.grids[name]]
        return [replace(self, **one) for one in tried]


@dataclass(frozen=True, kw_only=True)
class LastItemConfig(BaselineConfig):
    backbone: str = override(BaselineConfig, "backbone", "last-item")


@dataclass(frozen=True, kw_only=True)
class PersonalConfig(BaselineConfig):
    backbone: str = override(BaselineConfig, "backbone", "personal")


DECAYS = (1.0, 0.99, 0.97, 0.93, 0.85, 0.7, 0.5)


@dataclass(frozen=True, kw_only=True)
class PersonalDecayConfig(BaselineConfig):
    grids: ClassVar[Grids] = {"decay": DECAYS}

    backbone: str = override(BaselineConfig, "backbone", "personal-decay")
    decay: float | None = setting(
        None,
        "Weight of an event relative to the one after it; chosen on validation if left out.",
        above=0,
        max=1,
    )


@dataclass(frozen=True, kw_only=True)
class PersonalLastItemConfig(PersonalDecayConfig):
    grids: ClassVar[Grids] = {"decay": DECAYS, "transition_share": (0.5, 0.1, 0.25, 0.75, 0.9)}

    backbone: str = override(BaselineConfig, "backbone", "personal-last-item")
    transition_share: float | None = setting(
        None,
        "Share of the score that comes from what followed the last item; chosen on validation if "
        "left out.",
        above=0,
        max=1,
    )


@dataclass(frozen=True, kw_only=True)
class ItemKNNConfig(BaselineConfig):
    backbone: str = override(BaselineConfig, "backbone", "item-knn")
    neighbours: int = setting(100, "Most similar items that are kept of each item.", min=1)


@dataclass(frozen=True, kw_only=True)
class EASEConfig(BaselineConfig):
    grids: ClassVar[Grids] = {"l2": (300.0, 30.0, 100.0, 1000.0)}

    backbone: str = override(BaselineConfig, "backbone", "ease")
    l2: float | None = setting(
        None, "L2 penalty of the item weights; chosen on validation if left out.", above=0
    )


CONFIGS: dict[str, type[BaselineConfig]] = {
    config.backbone: config
    for config in (
        BaselineConfig,
        LastItemConfig,
        PersonalConfig,
        PersonalDecayConfig,
        PersonalLastItemConfig,
        ItemKNNConfig,
        EASEConfig,
    )
}
"""By name, in the order of every table; `linrec train` makes its flags from these."""
