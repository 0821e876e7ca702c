"""Item vectors from the command line: a file in, an item without events in the lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.cli.conftest import Command, Refused
from tests.training.cases import N_ITEMS, SMALL, cycle_events, flags_of


def test_prepare_train_and_recommend(linrec: Command, refused: Refused, tmp_path: Path) -> None:
    cycle_events().write_csv(tmp_path / "events.csv")
    names = [*sorted(cycle_events()["item"].unique()), "new"]
    table = np.random.default_rng(0).normal(size=(len(names), 4)).astype(np.float32)
    np.savez(tmp_path / "v.npz", ids=np.array(names), vectors=table)
    words = ("prepare", tmp_path / "events.csv", "--out", tmp_path / "data", "--item-vectors")
    made = linrec(*words, tmp_path / "v.npz")
    assert made.code == 0, made.err
    assert "of width 4; 1 items have no events" in made.out
    flags = flags_of(SMALL | {"epochs": 1})
    trained = linrec("train", tmp_path / "data", "--out", tmp_path / "run", *flags)
    assert "1 of 17 items have no training event and are recommended by their vectors" in (
        trained.out
    )
    shown = linrec(
        "recommend", tmp_path / "run", "--user", 100, "-k", N_ITEMS + 1, "--seen", "keep"
    )
    assert shown.code == 0, shown.err
    assert "new" in shown.out.split()
    np.savez(tmp_path / "w.npz", ids=np.array(names[:3]), vectors=table)
    assert "w.npz has 3 ids for 17 vectors" in refused(*words, tmp_path / "w.npz", "--overwrite")
    assert "does not exist" in refused(*words, tmp_path / "no.npz", "--overwrite")
    without = ("train", tmp_path / "data", "--out", tmp_path / "plain", "--item-vectors", "off")
    assert "--id-dropout 0.3; leave it out" in refused(*without, *flags, "--id-dropout", 0.3)
