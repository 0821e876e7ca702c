"""Recommendations for everybody in parts: the same lists, completed where they were interrupted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from linrec.batch import recommending
from linrec.batch.recommending import MARKER, Job, Part, recommend_everybody
from linrec.cli import app
from linrec.cluster.options import EngineOptions
from linrec.data.dataset.store import SequenceStore
from linrec.recommender import Recommender
from linrec.types import InputError


def job(run: Path, out: Path, **changes: Any) -> Job:
    return Job(run=run, out=out, **{"k": 3, "options": {}, **changes})


def parts(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("part-*"))}


def lists(out: Path) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(path) for path in sorted(out.glob("part-*"))])


def test_all_parts_together_are_the_lists_of_all_users(
    run: Path, trained: Recommender, store: SequenceStore, tmp_path: Path
) -> None:
    written = recommend_everybody(job(run, tmp_path / "recs"), part_users=7)
    assert (written.parts, written.skipped) == (-(-store.n_users // 7), 0)
    found, whole = lists(tmp_path / "recs"), trained.recommend(k=3).to_polars()
    assert written.recommendations == len(found) == len(whole)
    assert found.drop("score").equals(whole.drop("score"))
    # batches of other users round differently
    assert found["score"].to_list() == pytest.approx(whole["score"].to_list(), rel=1e-5)
    assert json.loads((tmp_path / "recs" / MARKER).read_text())["complete"] is True


def test_finished_parts_are_skipped(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "recs"
    recommend_everybody(job(run, out), part_users=7)
    before = parts(out)
    (out / Part(2, 0, 0).name).unlink()
    made: list[Part] = []
    write = Job.write

    def counted(self: Job, model: Recommender, data: Any, part: Part) -> Any:
        made.append(part)
        return write(self, model, data, part)

    monkeypatch.setattr(Job, "write", counted)
    written = recommend_everybody(job(run, out), part_users=7)
    assert [part.place for part in made] == [2]
    assert (written.skipped, written.parts) == (len(before) - 1, len(before))
    assert parts(out) == before


def test_one_process_opens_the_run_once(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[Path] = []
    start = Job.start

    def counted(self: Job) -> Any:
        starts.append(self.run)
        return start(self)

    monkeypatch.setattr(Job, "start", counted)
    recommend_everybody(job(run, tmp_path / "recs"), part_users=7)
    assert starts == [run.resolve()]


def test_a_run_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no run at .*; `linrec train` makes one"):
        recommend_everybody(job(tmp_path / "nowhere", tmp_path / "recs"))
    assert not (tmp_path / "recs").exists()


def test_an_interrupted_job_says_so_and_is_completed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, write = tmp_path / "recs", recommending.write_bytes

    def interrupted(path: Path, content: bytes) -> None:
        if path.name == "part-00001.parquet":
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(recommending, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        recommend_everybody(job(run, out), part_users=7)
    assert list(parts(out)) == ["part-00000.parquet"]
    assert json.loads((out / MARKER).read_text())["complete"] is False
    monkeypatch.undo()
    recommend_everybody(job(run, out), part_users=7)
    recommend_everybody(job(run, tmp_path / "other"), part_users=7)
    assert parts(out) == parts(tmp_path / "other")


@pytest.mark.parametrize(
    ("changes", "name"), [({"k": 4}, "k"), ({"options": {"seen": "keep"}}, "seen")]
)
def test_a_folder_of_another_job_is_refused(
    run: Path, tmp_path: Path, changes: dict[str, Any], name: str
) -> None:
    out = tmp_path / "recs"
    recommend_everybody(job(run, out), part_users=7)
    before = parts(out)
    with pytest.raises(InputError, match=f"differ in {name}; choose another folder"):
        recommend_everybody(job(run, out, **changes), part_users=7)
    assert parts(out) == before


def test_a_folder_of_somebody_else_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(InputError, match="was not made by linrec"):
        recommend_everybody(job(run, tmp_path))


def test_bad_settings_leave_nothing(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        recommend_everybody(job(run, tmp_path / "recs", options={"where": [("colour", ["red"])]}))
    assert not (tmp_path / "recs").exists()


def test_the_command(run: Path, store: SequenceStore, tmp_path: Path) -> None:
    command = ["recommend", str(run), "--all", "-k", "2", "--out", str(tmp_path / "recs")]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 0, found.output
    assert "has 1 parts" in found.stderr
    assert lists(tmp_path / "recs")["user"].n_unique() == store.n_users
    again = CliRunner().invoke(app, command)
    assert "wrote 0 recommendations" in again.stderr
    assert "(1 were there already)" in again.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers": 2}, "workers=2 needs engine=ray"),
        ({"address": "auto"}, "address=auto needs engine=ray"),
        ({"engine": "ray", "address": "ray://x:1"}, "is the address of a Ray client"),
        ({"engine": "spark"}, "engine"),
    ],
)
def test_engines_that_make_no_sense(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        EngineOptions(**options)


def test_who_ranks_imports_no_compiler_of_torch(run: Path) -> None:
    code = (
        "import sys, linrec;"
        f"print(len(linrec.load({str(run)!r}).recommend([['1', '2'], []], k=2)));"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "4"
