"""A STUDY folder: the only module that knows its names, and the only one that speaks Optuna.

One process owns the study. The sampler of each trial is seeded by the study's seed and the trial's
place, so a study that was killed and continued asks for the same trials as an undisturbed one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from linrec.files.atomic import check_free, write_bytes, write_folder, write_text
from linrec.files.guard import reading
from linrec.tuning.space import Choice, Range, Space
from linrec.tuning.trial import Outcome
from linrec.types import InputError

MARKER, DATABASE, LOCK = "study.json", "study.sqlite", ".lock"
RECIPE, TABLE = "best.toml", "trials.csv"
FORMAT = 1
STARTUP = 5  # completed trials before any is pruned


def optuna() -> Any:
    """The library, which is imported only by who tunes."""
    try:
        module = import_module("optuna")
    except ImportError:
        raise InputError(
            "tuning needs optuna, which is not installed; `pip install 'linrec[tune]'` adds it"
        ) from None
    module.logging.set_verbosity(module.logging.ERROR)
    return module


class Study:
    """Asks for settings to try, and remembers how each did."""

    def __init__(self, folder: Path, identity: Mapping[str, Any], space: Space) -> None:
        """Use `open` instead, which checks or makes the folder."""
        from sqlalchemy.engine import URL

        self.folder, self.identity, self.space = folder, identity, space
        self.seed: int = identity["settings"]["seed"]
        self.optuna = optuna()
        epochs: int = identity["settings"]["epochs"]
        pruner = self.optuna.pruners.MedianPruner(STARTUP, n_warmup_steps=max(epochs // 8, 1))
        place = URL.create("sqlite", database=str(folder.resolve() / DATABASE))
        self.study = self.optuna.create_study(
            storage=place.render_as_string(hide_password=False), study_name="linrec",
            direction="maximize", load_if_exists=True,
            pruner=pruner if identity["pruning"] else self.optuna.pruners.NopPruner(),
        )  # fmt: skip
        self.distributions = {name: self._distribution(part) for name, part in space.items()}

    @classmethod
    def check(cls, folder: Path, identity: Mapping[str, Any]) -> bool:
        """Whether a study is there that this one continues; refuses any other."""
        if not (folder / MARKER).is_file():
            check_free(folder, overwrite=False, marker=MARKER)
            return False
        with reading(str(folder / MARKER)):
            begun = json.loads((folder / MARKER).read_bytes())
            version = begun["format"]
        if version != FORMAT:
            raise InputError(
                f"{folder / MARKER} has format {version}, and this version of linrec reads "
                f"{FORMAT}; choose another path"
            )
        _check_same(folder, begun, json.loads(json.dumps(identity)))
        return True

    @classmethod
    def open(cls, folder: Path, identity: Mapping[str, Any], space: Space) -> Study:
        """Continue the study of this folder, or begin one."""
        if not cls.check(folder, identity):
            with write_folder(folder, marker=MARKER) as draft:
                content = {"format": FORMAT, **identity}
                write_text(draft / MARKER, json.dumps(content, indent=2) + "\n")
        lock = FileLock(folder / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise InputError(
                f"another process is tuning in {folder}; wait for its end, or choose another path"
            ) from None
        study = cls(folder, identity, space)
        study._lock = lock
        study._repeat_lost()
        return study

    _lock: FileLock | None = None

    def close(self) -> None:
        self.study._storage.remove_session()
        if self._lock is not None:
            self._lock.release()

    # ------------------------------------------------------------------------------------ trials

    def ask(self) -> Any:
        """The next trial: one that was lost, else what the sampler wants to know."""
        place = self._free_place()
        seed = np.random.SeedSequence([self.seed, place]).generate_state(1)[0]
        self.study.sampler = self.optuna.samplers.TPESampler(seed=int(seed))
        trial = self.study.ask(self.distributions)
        if "place" not in trial.user_attrs:
            trial.set_user_attr("place", place)
        return trial

    def try_first(self, values: Mapping[str, Any]) -> None:
        """Begin with these values, if nothing was tried yet and the space contains them."""
        inside = all(part.contains(values.get(name)) for name, part in self.space.items())
        if inside and not self.study.get_trials(deepcopy=False):
            chosen = {name: values[name] for name in self.space}
            self.study.enqueue_trial(chosen, user_attrs={"place": 0})

    def tell(self, trial: Any, outcome: Outcome) -> None:
        """What a trial came to; one that says nothing of its settings is to be repeated."""
        for name in ("end", "best_epoch", "epochs", "seconds"):
            trial.set_user_attr(name, getattr(outcome, name))
        if outcome.repeats:
            self.lose(trial)
        elif outcome.end == "complete":
            self.study.tell(trial, outcome.value)
        else:  # without a value TPE takes it for the worst
            self.study.tell(trial, state=self.optuna.trial.TrialState.PRUNED)

    def lose(self, trial: Any) -> None:
        """A trial that did not come to its end, and is repeated with the same settings."""
        self.study.tell(trial.number, state=self.optuna.trial.TrialState.FAIL)
        if trial.user_attrs.get("place") is not None and trial.params:
            known = {"place": trial.user_attrs["place"]}
            self.study.enqueue_trial(dict(trial.params), user_attrs=known)

    def _repeat_lost(self) -> None:
        """Trials of a process that was killed."""
        running = (self.optuna.trial.TrialState.RUNNING,)
        for trial in self.study.get_trials(states=running):
            self.lose(trial)

    def _free_place(self) -> int:
        taken = {trial.user_attrs.get("place") for trial in self.trials}
        return next(place for place in range(len(taken) + 1) if place not in taken)

    @property
    def trials(self) -> list[Any]:
        """All but those that were lost, by their places."""
        failed = self.optuna.trial.TrialState.FAIL
        found = [each for each in self.study.get_trials(deepcopy=False) if each.state != failed]
        return sorted(found, key=lambda trial: trial.user_attrs.get("place", trial.number))

    @property
    def finished(self) -> list[Any]:
        return [trial for trial in self.trials if trial.state.is_finished()]

    @property
    def best(self) -> Any:
        """The completed trial with the highest value, the first of equals; None without one."""
        complete = self.optuna.trial.TrialState.COMPLETE
        done = [trial for trial in self.trials if trial.state == complete]
        return max(done, key=lambda trial: trial.value, default=None)

    @property
    def seconds(self) -> float:
        """Spent in all, by this process and earlier ones."""
        return float(self.study.user_attrs.get("seconds", 0.0))

    def spent(self, seconds: float) -> None:
        self.study.set_user_attr("seconds", seconds)

    def importances(self) -> dict[str, float]:
        """How much each setting mattered, as shares; nothing where too little was tried."""
        evaluator = self.optuna.importance.PedAnovaImportanceEvaluator()
        try:
            found = self.optuna.importance.get_param_importances(self.study, evaluator=evaluator)
        except (ValueError, RuntimeError):  # all values equal, or fewer than two trials
            return {}
        return {name: float(value) for name, value in found.items() if np.isfinite(value)}

    def _distribution(self, part: Range | Choice) -> Any:
        kinds = self.optuna.distributions
        if isinstance(part, Choice):
            return kinds.CategoricalDistribution(part.choices)
        if part.whole:
            step = 1 if part.step is None else int(part.step)
            return kinds.IntDistribution(int(part.low), int(part.high), part.log, step)
        return kinds.FloatDistribution(part.low, part.high, part.log, part.step)

    # ------------------------------------------------------------------------------------- files

    @property
    def recipe(self) -> Path:
        return self.folder / RECIPE

    def write(self, name: str, content: bytes) -> None:
        write_bytes(self.folder / name, content)


def _check_same(folder: Path, begun: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    if begun["data"] != now["data"]:
        raise InputError(
            f"{folder} was begun on another dataset; continue it with that one, or choose another "
            "path"
        )
    parts = ("settings", "space", "pruning")
    for part in parts:
        old, new = begun[part], now[part]
        if not isinstance(old, Mapping):
            old, new = {part: old}, {part: new}
        for name in dict.fromkeys((*old, *new)):
            if old.get(name) != new.get(name):
                where = f"the space of {name}" if part == "space" else name
                raise InputError(
                    f"{folder} was begun with other settings: {where} was {_shown(old.get(name))} "
                    f"and now is {_shown(new.get(name))}; only the budget and the engine may "
                    "change, or choose another path"
                )


def _shown(value: Any) -> str:
    if value is None:
        return "left out"
    if isinstance(value, Mapping):
        return " ".join(f"{key} {each}" for key, each in value.items())
    return str(value)
