"""Flags made from settings: names, types, defaults and help text come from the dataclasses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from linrec.settings import kinds, settings_of

Family = Mapping[str, type[Any]]
"""Dataclasses of which a run has one, by the name that chooses it (such as a backbone)."""

TYPES: dict[str, Any] = {
    "bool": bool, "int": int, "float": float, "str": str, "Path": Path,
    "list[str]": list[str],  # a flag that may be repeated
}  # fmt: skip

Shards = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=64,
        help="SQLite files that a new store consists of, as a folder; writers of one do not wait "
        "for those of another.",
    ),
]


def with_flags(
    recipe: Mapping[str, Any] | None = None,
    /,
    **panels: Family | type[Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command, whose last parameter is **settings, one flag per setting.

    recipe: settings that the command has if none is given, where they are not the defaults of the
    dataclasses; the help shows them. panels: dataclasses or families of them, by the heading of
    their flags. The command gets only the settings that were given: the defaults stay where they
    are defined.
    """
    families = {panel: {"": one} if isinstance(one, type) else one for panel, one in panels.items()}
    flags: dict[str, inspect.Parameter] = {}
    for panel, family in families.items():
        for name in _names(family):
            if name not in flags:  # the first panel shows it, with the choices of the others
                others = [
                    key
                    for one in families.values()
                    if one != family and name in _names(one)
                    for key in one
                ]
                flags[name] = _flag(name, panel, family, _Also(recipe or {}, others))

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        *own, _ = inspect.signature(command, eval_str=True).parameters.values()

        def called(**given: Any) -> None:
            unset = {name for name in flags if given[name] is None}
            command(**{name: value for name, value in given.items() if name not in unset})

        parameters = [*own, *flags.values()]
        called.__name__, called.__doc__ = command.__name__, command.__doc__
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {part.name: part.annotation for part in parameters}
        return called

    return decorate


def part_of(config: type[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the given settings that belong to a dataclass."""
    return {name: settings[name] for name in settings_of(config) if name in settings}


def _names(family: Family) -> list[str]:
    return list(dict.fromkeys(name for config in family.values() for name in settings_of(config)))


class _Also(NamedTuple):
    """What the help shows besides what the family says."""

    recipe: Mapping[str, Any]  # its settings are the defaults
    choices: Sequence[str]  # besides the names of the family


def _flag(name: str, panel: str, family: Family, also: _Also) -> inspect.Parameter:
    items = {
        owner: settings_of(config)[name]
        for owner, config in family.items()
        if name in settings_of(config)
    }
    item = next(iter(items.values()))
    plain = next((TYPES[kind] for kind in kinds(item) if kind in TYPES), str)
    option = typer.Option(
        help=_help(items, family, also), rich_help_panel=item.metadata["setting"].group or panel
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[plain | None, option],
    )


def _help(items: Mapping[str, Field[Any]], family: Family, also: _Also) -> str:
    """What it is, what it can be, who has it and its default."""
    first = next(iter(items.values()))
    defaults = {owner: also.recipe.get(item.name, item.default) for owner, item in items.items()}
    names_the_family = len(family) > 1 and list(defaults.values()) == list(family)
    text, choices = first.metadata["setting"].help, first.metadata["setting"].choices
    if names_the_family:
        choices, defaults = (*family, *also.choices), dict.fromkeys(family, first.default)
    if choices:
        text += f" One of {', '.join(choices)}."
    if len(items) < len(family):
        text += f" Only for {', '.join(items)}."
    shown = _default(defaults)
    return f"{text} [dim]\\[{shown}][/dim]" if shown else text


def _default(defaults: Mapping[str, Any]) -> str:
    """The default, and where some of the family have another one, theirs too."""
    values = list(dict.fromkeys(defaults.values()))
    if values == [None]:
        return ""
    usual = max(values, key=list(defaults.values()).count)
    others = [f"{owner} {_shown(value)}" for owner, value in defaults.items() if value != usual]
    return ", ".join([_shown(usual), *others])


def _shown(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
