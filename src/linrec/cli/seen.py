"""The flag --seen of the commands that rank items."""

from __future__ import annotations

from typing import Annotated

import typer

from linrec.types import Seen, parse_seen

SeenFlag = Annotated[
    str | None,
    typer.Option(
        "--seen",
        metavar="hide|keep",
        help="Hide or keep what the user has had; as the run says if left out.",
    ),
]


def seen_of(given: str | None) -> Seen | None:
    """The value of the flag; None is left to the run."""
    return None if given is None else parse_seen(given)
