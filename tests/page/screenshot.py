"""docs/images/page.png, from the demo's run: python -m tests.page.screenshot linrec-demo"""

from __future__ import annotations

import sys
from pathlib import Path

from linrec.data.dataset.store import SequenceStore
from tests.page.browser import browsing, serving

OUT = Path(__file__).resolve().parents[2] / "docs" / "images" / "page.png"
USER = 3  # of the demo's members
SIZE = {"width": 1280, "height": 860}


def main(demo: Path) -> None:
    from linrec.serving import NewEvent

    store = SequenceStore.open(demo / "data")
    films = store.item_table["item"].gather(store.sequences()[USER] - 1)
    user = str(store.users.ids[USER])
    with serving(demo / "run") as (address, engine), browsing() as browser:
        engine.append(user, [NewEvent(str(film), float(at)) for at, film in enumerate(films)])
        page = browser.new_page(viewport=SIZE)
        page.goto(f"{address}/#user={user}")
        page.locator("#strip li").first.wait_for()
        page.locator("#next .add").nth(1).click()  # so that the list has moved
        page.locator("#next .moved").first.wait_for()
        page.wait_for_timeout(1500)
        OUT.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=OUT)
    print(f"wrote {OUT}, {OUT.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
