"""Made-up events in the official layouts of the datasets that can be downloaded.

Six members see five items each, and the first of them a sixth that nobody else does.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Mapping

USERS, ITEMS = range(1, 7), range(1, 6)
RARE = 99
SEEN = [(user, item) for user in USERS for item in ITEMS] + [(1, RARE)]
EVENTS = [(user, item, 978300000 + 60 * at) for at, (user, item) in enumerate(SEEN)]
AFTER_5_CORE = {"users": len(USERS), "items": len(ITEMS), "events": len(SEEN) - 1}


def zipped(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def ml_1m() -> bytes:
    ratings = "".join(f"{user}::{item}::4::{time}\n" for user, item, time in EVENTS)
    movies = "".join(f"{item}::Été {item} (1995)::Comedy|Drama\n" for item in (*ITEMS, RARE))
    return zipped(
        {
            "ml-1m/": b"",
            "ml-1m/README": b"terms",
            "ml-1m/ratings.dat": ratings.encode(),
            "ml-1m/movies.dat": movies.encode("latin-1"),
            "ml-1m/users.dat": b"1::F::1::10::48067\n",
        }
    )


def ml_100k() -> bytes:
    ratings = "".join(f"{user}\t{item}\t4\t{time}\n" for user, item, time in EVENTS)
    flags = "|".join("1" if at in (5, 8) else "0" for at in range(19))  # Comedy, Drama
    movies = "".join(
        f"{item}|Été {item} (1995)|01-Jan-1995||http://example.org/{item}|{flags}\n"
        for item in (*ITEMS, RARE)
    )
    return zipped(
        {
            "ml-100k/README": b"terms",
            "ml-100k/u.data": ratings.encode(),
            "ml-100k/u.item": movies.encode("latin-1"),
            "ml-100k/u.user": b"1|24|M|technician|85711\n",
            "ml-100k/u1.base": b"1\t1\t4\t978300000\n",
        }
    )


def ml_csv(folder: str) -> bytes:
    ratings = "".join(f"{user},{item},4.0,{time}\r\n" for user, item, time in EVENTS)
    movies = "".join(f'{item},"Été, {item} (1995)",Comedy|Drama\r\n' for item in (*ITEMS, RARE))
    return zipped(
        {
            f"{folder}/README.txt": b"terms",
            f"{folder}/ratings.csv": f"userId,movieId,rating,timestamp\r\n{ratings}".encode(),
            f"{folder}/movies.csv": f"movieId,title,genres\r\n{movies}".encode(),
            f"{folder}/links.csv": b"movieId,imdbId,tmdbId\r\n",
            f"{folder}/tags.csv": b"userId,movieId,tag,timestamp\r\n",
        }
    )


def gowalla() -> bytes:
    lines = [
        f"{user}\t2010-10-{at // 24 + 1:02}T{at % 24:02}:00:00Z\t30.2\t-97.7\t{venue}\n"
        for at, (user, venue) in enumerate(SEEN)
    ]
    return gzip.compress("".join(lines).encode())


ARCHIVES = {
    "ml-1m": ml_1m,
    "ml-100k": ml_100k,
    "ml-latest-small": lambda: ml_csv("ml-latest-small"),
    "ml-20m": lambda: ml_csv("ml-20m"),
    "gowalla": gowalla,
}
