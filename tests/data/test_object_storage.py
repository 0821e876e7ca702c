"""Events and datasets in object storage: what is made of them is what a file system gives."""

from __future__ import annotations

import gzip
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import linrec
from linrec.cli import app
from linrec.cluster.nodes import trouble_of
from linrec.cluster.options import EngineOptions
from linrec.data.dataset import remote_store
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.divided.driver import prepare_divided
from linrec.data.preparing.options import PrepareOptions
from linrec.data.preparing.prepare import prepare
from linrec.data.reading.events import files_of
from linrec.files import copies
from linrec.files.copies import cache_folder, outgoing
from linrec.files.remote import Address, send
from linrec.types import InputError
from tests.data.preparing.test_divided import content, log, sizes
from tests.storage import Bucket

MANIFEST = "dataset.json"


def same(remote: SequenceStore, local: SequenceStore, bucket: Bucket, tmp_path: Path) -> None:
    """In all but where they were made from."""
    assert remote.fingerprint == local.fingerprint
    assert remote.item_table.equals(local.item_table)
    texts = [json.dumps(each.summary) for each in (remote, local)]
    assert texts[0].replace(bucket.address(""), "@") == texts[1].replace(f"{tmp_path}/", "@")


def parts(tmp_path: Path, bucket: Bucket) -> None:
    """A log in three files, here and in storage, with files that hold no events beside."""
    whole = log()
    for n, part in enumerate(whole.iter_slices(250)):
        name = f"log/shop=s{n + 1}/part.csv"
        (tmp_path / name).parent.mkdir(parents=True)
        part.write_csv(tmp_path / name)
    (tmp_path / "log" / "README").write_text("the log of a shop")
    (tmp_path / "log" / ".hidden.csv").write_text("nothing")
    bucket.put_folder("log", tmp_path / "log")


@pytest.mark.parametrize("pattern", ["log", "log/*/*.csv", "log/**/part.csv"])
def test_events_of_a_folder_or_a_pattern(pattern: str, bucket: Bucket, tmp_path: Path) -> None:
    parts(tmp_path, bucket)
    options = {"context": "shop,type", "min_item_events": 3}
    remote = prepare(bucket.address(pattern), tmp_path / "remote", **options)
    local = prepare(str(tmp_path / pattern), tmp_path / "local", **options)
    same(remote, local, bucket, tmp_path)
    assert remote.summary["source"]["name"] == bucket.address(pattern)
    assert not [path for path in cache_folder().iterdir() if path.name != "datasets"]


@pytest.mark.parametrize("name", ["log.parquet", "log.csv.gz", "log", "ratings.dat"])
def test_events_of_one_file(name: str, bucket: Bucket, tmp_path: Path) -> None:
    """Of a known name, gzipped, of a kind that only its first line tells, with items beside."""
    frame, file = log(), tmp_path / name
    if name == "log.parquet":
        frame.write_parquet(file)
    elif name == "ratings.dat":
        rows = frame.select("basket", "item", "rating", "time").iter_rows()
        file.write_text("".join("::".join(map(str, row)) + "\n" for row in rows))
        items = "".join(f"{n}::Film {n} (1995)::Drama|War\n" for n in range(30))
        (tmp_path / "movies.dat").write_text(items)
        bucket.put("movies.dat", tmp_path / "movies.dat")
    else:
        text = frame.write_csv().encode()
        file.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    bucket.put(name, file)
    remote = prepare([bucket.address(name)])
    same(remote, prepare([file]), bucket, tmp_path)
    assert bool(remote.features) == (name == "ratings.dat")


def test_items_and_vectors(bucket: Bucket, tmp_path: Path) -> None:
    log().write_csv(tmp_path / "log.csv")
    ids = sorted(log()["item"].unique().to_list())
    (tmp_path / "items.csv").write_text("item,maker\n" + "".join(f"{n},m{n % 3}\n" for n in ids))
    vectors = np.random.default_rng(0).random((len(ids), 3), np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    (tmp_path / "vectors.ids.txt").write_text("\n".join(map(str, ids)))
    for name in ("log.csv", "items.csv", "vectors.npy", "vectors.ids.txt"):
        bucket.put(name, tmp_path / name)
    made = [
        prepare(
            at("log.csv"), items=at("items.csv"), item_vectors=at("vectors.npy"), max_expansion=100
        )
        for at in (bucket.address, lambda name: str(tmp_path / name))
    ]
    same(*made, bucket, tmp_path)
    assert made[0].item_vectors is not None
    assert np.array_equal(made[0].item_vectors, made[1].item_vectors)


def test_a_message_names_the_address(bucket: Bucket, tmp_path: Path) -> None:
    address = bucket.address
    bucket.put("empty.csv", b"")
    bucket.put("bad.csv", b"user,item,time\nu,1,2024-05-01\nv,,2024-05-01\n")
    bucket.put("three.dat", b"1::2\n")
    bucket.put("mixed/a.csv", b"user,item\nu,1\n")
    bucket.put("mixed/b.tsv", b"user\titem\nu\t1\n")
    for name, words in {
        "empty.csv": "is empty; give a file with events",
        "none.csv": "does not exist; check the path",
        "none/*.csv": "no file matches",
        "three.dat": "the first line has 2 fields",
        "mixed": "holds files of several formats",
    }.items():
        with pytest.raises(InputError, match=words) as caught:
            prepare(address(name), tmp_path / "out")
        assert address(name) in str(caught.value)
    with pytest.raises(InputError, match=r"bad\.csv, row 2 \(line 3\)") as caught:
        prepare(address("bad.csv"), tmp_path / "out")
    assert str(tmp_path) not in str(caught.value)
    with pytest.raises(InputError, match="there is no bucket 'none-such'"):
        prepare("s3://none-such/log/*.csv", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def made(tmp_path: Path, bucket: Bucket, **options: Any) -> tuple[SequenceStore, SequenceStore]:
    """A dataset in storage, and the same on a file system."""
    log().write_parquet(tmp_path / "log.parquet")
    source = tmp_path / "log.parquet"
    local = prepare(source, tmp_path / "local", group="basket", context="type,price", **options)
    remote = prepare(
        source, bucket.address("data"), group="basket", context="type,price", **options
    )
    return remote, local


@pytest.mark.parametrize("shards", [None, 150])
def test_a_dataset_in_storage_is_that_of_a_folder(
    shards: int | None, bucket: Bucket, tmp_path: Path
) -> None:
    remote, _ = made(tmp_path, bucket, shard_events=shards)
    assert bucket.content("data") == content(tmp_path / "local")
    assert str(remote.path) == bucket.address("data")
    again = SequenceStore.open(Path(bucket.address("data")))
    assert again.fingerprint == remote.fingerprint
    assert again.groups is not None
    assert [each.name for each in again.context] == ["type", "price"]


def test_a_copy_is_fetched_once_and_again_when_the_dataset_changed(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    fetch = copies.fetch

    def counted(address: Address, to: Path) -> None:
        fetched.append(address.name)
        fetch(address, to)

    monkeypatch.setattr(copies, "fetch", counted)
    address = Path(bucket.address("data"))
    made(tmp_path, bucket)
    SequenceStore.open(address)
    assert not fetched  # who has written it has it
    monkeypatch.setenv("LINREC_CACHE", str(tmp_path / "another"))
    first = SequenceStore.open(address)
    assert sorted(fetched) == sorted(path.name for path in (tmp_path / "local").iterdir())
    SequenceStore.open(address)
    assert len(fetched) == len(set(fetched))
    fetched.clear()
    prepare(log(seed=1), bucket.address("data"), overwrite=True)
    assert SequenceStore.open(address).fingerprint != first.fingerprint
    assert "groups.npy" not in bucket.content("data")
    assert first.items.max() > 0  # the older copy is still there for who reads it


def test_the_same_sequences_with_other_features_are_another_dataset(bucket: Bucket) -> None:
    ids = sorted(log()["item"].unique().to_list())
    for maker in ("one", "two"):
        items = pl.DataFrame({"item": ids, "maker": [maker] * len(ids)})
        prepare(log(), bucket.address("data"), items=items, overwrite=maker == "two")
        found = SequenceStore.open(Path(bucket.address("data")))
        assert found.item_table["maker"].unique().to_list() == [maker]


def test_without_its_manifest_nothing_is_read(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest comes last, so a transfer that breaks leaves no dataset, also of the older."""
    address, order = bucket.address("data"), []
    made(tmp_path, bucket)

    def noted(file: Path, to: Address) -> None:
        assert MANIFEST not in bucket.content("data")
        order.append(to.name)
        if failing and to.name == "times.npy":
            raise InputError("the line is cut")
        send(file, to)

    failing = True
    monkeypatch.setattr(copies, "send", noted)
    with pytest.raises(InputError, match="the line is cut"):
        prepare(log(seed=1), address, overwrite=True)
    assert not bucket.content("data")
    with pytest.raises(InputError, match=r"there is no dataset at s3://.*still being written"):
        SequenceStore.open(Path(address))
    failing = False
    order.clear()
    prepare(log(seed=1), address)
    assert order[-1] == MANIFEST
    assert set(bucket.content("data")) == set(order)


def test_what_a_killed_writer_left_is_replaced(bucket: Bucket) -> None:
    bucket.put(f"data/{MANIFEST}{copies.BEGUN}", b"")
    bucket.put("data/items.npy", b"half")
    prepare(log(), bucket.address("data"))
    assert SequenceStore.open(Path(bucket.address("data"))).n_events == 600
    assert f"{MANIFEST}{copies.BEGUN}" not in bucket.content("data")


def test_what_is_there_is_not_replaced_unasked(bucket: Bucket) -> None:
    bucket.put("data/photo.jpg", b"dear to somebody")
    bucket.put("file", b"x")
    with pytest.raises(InputError, match=r"holds objects and no dataset\.json.*choose another"):
        prepare(log(), bucket.address("data"), overwrite=True)
    with pytest.raises(InputError, match="is an object and not a folder"):
        prepare(log(), bucket.address("file"))
    prepare(log(), bucket.address("new"))
    with pytest.raises(InputError, match="already exists; add overwrite=True"):
        prepare(log(), bucket.address("new"))
    with pytest.raises(InputError, match="there is no bucket 'none-such'"):
        prepare(log(), "s3://none-such/data")
    assert bucket.content("data") == {"photo.jpg": b"dear to somebody"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda bucket: bucket.delete("data/times.npy"), r"lacks times\.npy"),
        (lambda bucket: bucket.put("data/times.npy", b"x"), "is not a whole array"),
        (lambda bucket: bucket.put(f"data/{MANIFEST}", b"{"), "cannot read s3://"),
    ],
)
def test_a_damaged_dataset(change: Any, words: str, bucket: Bucket) -> None:
    prepare(log(), bucket.address("data"))
    change(bucket)
    with pytest.raises(InputError, match=words) as caught:
        SequenceStore.open(Path(bucket.address("data")))
    assert bucket.address("data") in str(caught.value)


def test_a_dataset_that_changes_while_it_is_read(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(log(), bucket.address("data"))
    monkeypatch.setenv("LINREC_CACHE", str(tmp_path / "another"))
    kept_copy = remote_store.kept_copy

    def meanwhile(*given: Any) -> Path:
        copy = kept_copy(*given)
        bucket.put("data/items.npy", b"of another dataset")
        return copy

    monkeypatch.setattr(remote_store, "kept_copy", meanwhile)
    with pytest.raises(InputError, match="changed while it was read; run the command again"):
        SequenceStore.open(Path(bucket.address("data")))


@pytest.mark.parametrize("blocks", [1, 8])
def test_divided_work_gives_the_same_objects(blocks: int, bucket: Bucket, tmp_path: Path) -> None:
    parts(tmp_path, bucket)
    options = PrepareOptions(context="shop,type", min_item_events=3, skip_bad_rows=True)
    prepare(bucket.address("log"), tmp_path / "one", options, shard_events=150)
    files = files_of(bucket.address("log"), options.reading)
    assert files is not None
    address = Address(f"s3:/{bucket.name}/out")
    prepare_divided(files, address, options, EngineOptions(), shard_events=150, sizes=sizes(blocks))
    assert bucket.content("out") == content(tmp_path / "one")
    assert [path.name for path in cache_folder().iterdir()] == ["datasets"]


def test_a_cache_that_other_machines_do_not_see(bucket: Bucket) -> None:
    draft = str(outgoing(Address(bucket.address("data"))))
    answer = {"linrec": version("linrec"), "sees": [False]}
    assert "set LINREC_CACHE to a path on a file system" in str(trouble_of(answer, [draft]))
    assert "LINREC_CACHE" not in str(trouble_of(answer, ["/data"]))


@pytest.mark.slow
@pytest.mark.usefixtures("ray_alone")
def test_ray_reads_and_writes_storage(bucket: Bucket, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs linrec[ray]")
    parts(tmp_path, bucket)
    prepare(bucket.address("log"), tmp_path / "one", context="type")
    engine = EngineOptions(engine="ray", workers=1)
    prepare(bucket.address("log"), bucket.address("out"), context="type", engine=engine)
    assert bucket.content("out") == content(tmp_path / "one")
    settings = {"recipe": "small", "epochs": 1, "width": 8}
    words = [f"--{name}={value}" for name, value in settings.items()]
    command = ["train", bucket.address("out"), "--out", str(tmp_path / "run"), *words]
    found = CliRunner().invoke(app, [*command, "--engine", "ray", "--workers", "1"])
    assert found.exit_code == 0, found.exception or found.output
    assert linrec.load(tmp_path / "run").dataset().path == Address(bucket.address("out"))


@pytest.mark.slow
def test_the_commands_take_addresses(bucket: Bucket, demo_files: Path, tmp_path: Path) -> None:
    bucket.put("events.csv", demo_files / "events.csv")
    data, run = bucket.address("data"), str(tmp_path / "run")

    def command(*words: str) -> str:
        found = CliRunner().invoke(app, words)
        assert found.exit_code == 0, found.exception or found.output
        return found.output

    command("prepare", bucket.address("events.csv"), "--out", data)
    command("train", data, "--out", run, "--recipe", "small", "--epochs", "1", "--width", "8")
    there = SequenceStore.open(Path(data))
    command("evaluate", run)  # finds the dataset where the training had it
    command("recommend", run, "--all", "-k", "3", "--out", str(tmp_path / "lists"))
    command("describe", data)
    assert (tmp_path / "lists" / "recommendations.json").is_file()
    assert there.path == Address(data)
    assert not (tmp_path / "s3:").exists()
    refused = CliRunner().invoke(app, ["train", data, "--out", bucket.address("run")])
    assert isinstance(refused.exception, InputError)
    assert "only events, items and datasets may be in object storage" in str(refused.exception)
