"""docs/results.md, its plots and the one-file report, from the JSON files among the results."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from markdown_it import MarkdownIt

import linrec
from benchmarks.environment import commit
from experiments import attention, costs, quality, smoothness
from experiments.cells import of_table
from experiments.datasets import DATASETS
from experiments.outcomes import Options
from experiments.plots import all_figures
from experiments.readme import with_tables
from linrec.files.atomic import write_bytes, write_text

HERE = Path(__file__).parent
IMAGES = "images"
IMAGE = re.compile(rf"\]\({IMAGES}/([\w-]+)\.png\)")
NEIGHBOUR = re.compile(r"\[([^\]]+)\]\([\w-]+\.md(?:#[\w-]+)?\)")


def write_pages(options: Options) -> Path:
    """Everything beside the results folder: docs/, the README's tables; the report inside it."""
    home, figures = options.results.parent, all_figures(options)
    for name, png in figures.items():
        write_bytes(home / "docs" / IMAGES / f"{name}.png", png)
    page = markdown(options, figures)
    write_text(home / "docs" / "results.md", page)
    readme = home / "README.md"
    if readme.exists():
        write_text(readme, with_tables(readme.read_text("utf-8"), options))
    report = options.results / "report.html"
    write_text(report, html(page, figures))
    return report


def markdown(options: Options, figures: Mapping[str, object]) -> str:
    """The page of results; `figures` are those it may show."""
    environment = Environment(loader=FileSystemLoader(HERE), trim_blocks=True, lstrip_blocks=True)
    text = environment.get_template("results.md.j2").render(
        datasets=DATASETS,
        statistics=quality.statistics(options),
        overall={name: quality.overall_table(name, options) for name in DATASETS},
        efficient={name: quality.efficient_table(name, options) for name in DATASETS},
        ablation={name: quality.ablation_table(name, options) for name in DATASETS},
        scaling={name: costs.scaling_table(name, options) for name in DATASETS},
        lengths=costs.lengths_table(options),
        smoothness=smoothness.smoothness_table(options),
        row_sums=smoothness.conditions_table("row_sum", options),
        largest=smoothness.conditions_table("row_sum_max", options),
        negative=smoothness.conditions_table("negative_share", options),
        equal_time=quality.equal_time_table(options),
        reach=quality.reach_table(options),
        figure=lambda name, told: f"![{told}]({IMAGES}/{name}.png)" if name in figures else "",
        missing=lambda table: missing(table, options),
        finding=finding,
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def html(page: str, figures: Mapping[str, bytes]) -> str:
    """The same as one file that can be mailed, where other pages are names and no links."""

    def inlined(found: re.Match[str]) -> str:
        return f"](data:image/png;base64,{b64encode(figures[found[1]]).decode()})"

    def named(found: re.Match[str]) -> str:
        section = re.sub(r"[^\w -]", "", found[1]).lower().replace(" ", "-")
        return f'<h2 id="{section}">{found[1]}</h2>'

    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    body = reader.render(NEIGHBOUR.sub(r"\1", IMAGE.sub(inlined, page)))
    environment = Environment(loader=FileSystemLoader(HERE))
    return environment.get_template("report.html.j2").render(
        body=re.sub(r"<h2>(.+)</h2>", named, body), version=linrec.__version__, commit=commit()
    )


def finding(question: str) -> str:
    """What was found, in words written after looking; kept by hand."""
    path = HERE / "findings" / f"{question}.md"
    return f"**Found.** {path.read_text('utf-8').strip()}" if path.exists() else ""


def missing(table: str, options: Options) -> str:
    """What is not there yet, and the command that makes it."""
    absent = _absent(table, options)
    if not absent:
        return ""
    data = " ".join(f"--data {name}=PATH" for name in DATASETS)
    verb = "all" if table == "statistics" else table
    return (
        f"*{absent} of the figures for these are not there yet; "
        f"`python -m experiments {verb} {data}` makes them.*"
    )


def _absent(table: str, options: Options) -> int:
    if table == "statistics":
        places = [options.results / name / "statistics.json" for name in DATASETS]
        return sum(not place.exists() for place in places)
    if table in ("heatmap", "conditions"):
        return sum(not attention.is_looked_at(cell, options) for cell in of_table(table))
    if table == "lengths":
        return 3 * len(options.lengths) - len(costs.of_lengths(options))
    cells = of_table("overall" if table == "scaling" else table)
    if table == "scaling":
        place = options.results / "scaling"
        return sum(not (place / f"{cell.name}.json").exists() for cell in cells)
    return sum(options.outcome(cell) is None for cell in cells)
