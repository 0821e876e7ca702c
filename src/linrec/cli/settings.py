"""Every setting of a run as a flag, made from the settings themselves so that none is missing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Annotated, Any, Optional, get_args, get_type_hints

import typer

from linrec.backbones.config import ModelConfig
from linrec.runs.config import TrainingConfig


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command`, whose last parameter is **settings, one option a setting."""
    flags = [
        _flag(item, get_type_hints(part)[item.name], panel)
        for part, panel in ((ModelConfig, "Model"), (TrainingConfig, "Training"))
        for item in fields(part)
    ]
    own = list(inspect.signature(command, eval_str=True).parameters.values())[:-1]

    def called(**given: Any) -> None:
        names = {flag.name for flag in flags}
        settings = {name: given.pop(name) for name in list(given) if name in names}
        command(**given, **{name: value for name, value in settings.items() if value is not None})

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    signature = inspect.Signature([*own, *flags])
    called.__signature__ = signature  # type: ignore[attr-defined]
    called.__annotations__ = {name: part.annotation for name, part in signature.parameters.items()}
    return called


def _flag(item: Field[Any], kind: Any, panel: str) -> inspect.Parameter:
    choices = [
        choice
        for part in (kind, *get_args(kind))
        for choice in get_args(part)
        if isinstance(choice, str)
    ]
    plain = next((k for k in (bool, int, float, str) if kind is k or k in get_args(kind)), str)
    shown = item.metadata["unset"] if item.default is None else item.default
    text = item.metadata["help"] + (f" One of {', '.join(choices)}." if choices else "")
    option = typer.Option(help=f"{text} [dim]\\[{shown}][/dim]", rich_help_panel=panel)
    return inspect.Parameter(
        item.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[Optional[plain], option],  # noqa: UP045 - typer reads it at run time
    )
