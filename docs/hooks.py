"""mkdocs hooks: pages and plots of the repository that live outside docs/ are part of the site."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PLOTS = ROOT / "results" / "benchmarks"
PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
# a link as it is right in the repository -> the same link in the site
LINKS = {
    "](../results/benchmarks/": "](benchmarks/",
    "](../CHANGELOG.md": "](changelog.md",
    "](../CONTRIBUTING.md": "](contributing.md",
    "](docs/": "](",
}
# what a browser fetches without being asked; a link is only followed when somebody clicks on it
FETCHED = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*(?:src|href)=["']?(https?:)?//[^>]*>""")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add CHANGELOG.md, CONTRIBUTING.md and the plots of the benchmarks."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text("utf-8")))
    for plot in sorted(PLOTS.glob("*.png")):
        files.append(File.generated(config, f"benchmarks/{plot.name}", abs_src_path=str(plot)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Make links that are right in the repository right in the site."""
    for link, in_site in LINKS.items():
        markdown = markdown.replace(link, in_site)
    return markdown


def on_post_page(output: str, **_: object) -> str:
    """Refuse a page that would load anything from another site."""
    fetched = FETCHED.search(output)
    if fetched:
        raise PluginError(f"a page loads something from another site: {fetched[0]}")
    return output
