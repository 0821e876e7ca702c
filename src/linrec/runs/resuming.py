"""Whether a training continues the one that a run was begun with."""

from __future__ import annotations

from pathlib import Path

from linrec.data.dataset.store import same_dataset
from linrec.runs.config import RunConfig
from linrec.runs.description import RunDescription
from linrec.types import InputError, argument

MAY_CHANGE = ("epochs", "patience")
"""Settings that may differ when a run is resumed; any other change would make it another run.

`final` may too: it adds a second training to a finished one.
"""


def check_same_dataset(folder: Path, begun: RunDescription, description: RunDescription) -> None:
    before = begun.dataset
    if not same_dataset(before.get("fingerprint"), description.dataset.get("fingerprint")):
        raise InputError(
            f"{folder} was begun on another dataset ({before.get('path')}); "
            "resume it with that one, or choose another path"
        )


def check_same_start(folder: Path, begun: RunDescription, description: RunDescription) -> None:
    """A run that is resumed before its first checkpoint, or `final`, needs its start again."""
    before, now = begun.start, description.start
    if before is None and now is not None:
        raise InputError(
            f"{folder} was begun without {argument('start')}; leave it out to resume it"
        )
    if before is not None and now is None:
        raise InputError(
            f"{folder} was begun from {before['run']}; resume it with "
            f"{argument('start', before['run'])}"
        )
    if before is not None and now is not None and before["weights"] != now["weights"]:
        raise InputError(
            f"{folder} was begun from other weights than those that are now in {now['run']}; "
            f"train without {argument('resume', True)} in another folder"
        )


def check_same_settings(folder: Path, begun: RunConfig, description: RunDescription) -> None:
    before, now = begun.as_dict(), description.config("the settings").as_dict()
    epochs = [settings["training"]["epochs"] for settings in (before, now)]
    if before["training"]["schedule"] == "linear" and epochs[0] != epochs[1]:
        raise InputError(
            f"the learning rate of {folder} falls to zero over {epochs[0]} epochs, and another "
            f"number would be another schedule; resume with {argument('epochs', epochs[0])}, or "
            f"train without {argument('resume', True)} in another folder"
        )
    for part in ("model", "training"):
        for name, old in before[part].items():
            new = now[part].get(name)  # another loss or backbone has other settings
            if name not in (*MAY_CHANGE, "final") and old != new:
                raise InputError(
                    f"{folder} was begun with other settings: {name} was {_shown(old)} and now "
                    f"is {_shown(new)}; only {' and '.join(MAY_CHANGE)} may change when a run is "
                    "resumed"
                )


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
