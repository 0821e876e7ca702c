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
from experiments import (
    attention,
    costs,
    default_model,
    quality,
    reach,
    repeats,
    seeds,
    smoothness,
)
from experiments.cells import REACH_EPOCHS, SLOW_EPOCHS, of_table
from experiments.datasets import ALL, DATASETS, WITH_REPEATS
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
        budget=budget(),
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
        seeds=seeds.seeds_table(options),
        equal_time=quality.equal_time_table(options),
        reach=quality.reach_table(options),
        default_seeds=default_model.seeds_table(options),
        default_mechanisms=default_model.mechanisms_table(options),
        default_parts=default_model.parts_table(options),
        default_gaps=default_model.gaps_table(options),
        long={
            ALL[name].title: made
            for name in REACH_EPOCHS
            if (made := reach.reach_table(name, options))
        },
        with_repeats=WITH_REPEATS,
        repeats={name: repeats.repeats_table(name, options) for name in WITH_REPEATS},
        figure=lambda name, title: f"![{title}]({IMAGES}/{name}.png)" if name in figures else "",
        missing=lambda table: missing(table, options),
        finding=finding,
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def budget() -> str:
    """The number of epochs of every cell, in words."""
    usual = [f"{dataset.epochs} epochs on {dataset.title}" for dataset in DATASETS.values()]
    return ", ".join([*usual, *(f"{n} with `{name}`" for name, n in SLOW_EPOCHS.items())])


def html(page: str, figures: Mapping[str, bytes]) -> str:
    """The same in one file, where the names of other pages are not links."""

    def inlined(match: re.Match[str]) -> str:
        return f"](data:image/png;base64,{b64encode(figures[match[1]]).decode()})"

    def named(match: re.Match[str]) -> str:
        section = re.sub(r"[^\w -]", "", match[1]).lower().replace(" ", "-")
        return f'<h2 id="{section}">{match[1]}</h2>'

    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    body = reader.render(NEIGHBOUR.sub(r"\1", IMAGE.sub(inlined, page)))
    environment = Environment(loader=FileSystemLoader(HERE))
    return environment.get_template("report.html.j2").render(
        body=re.sub(r"<h2>(.+)</h2>", named, body), version=linrec.__version__, commit=commit()
    )


def finding(question: str) -> str:
    """What the figures show, written by hand."""
    path = HERE / "findings" / f"{question}.md"
    return f"**Found.** {path.read_text('utf-8').strip()}" if path.exists() else ""


def missing(table: str, options: Options) -> str:
    """How many cells are missing or have a part of their budget, and the command for the rest."""
    absent = _absent(table, options)
    trained = [cell for cell in of_table(table) if table not in ("heatmap", "conditions")]
    partial = sum(bool(options.outcome(cell)) and not options.finished(cell) for cell in trained)
    counts = [
        f"{absent} of these cells are not measured yet" if absent else "",
        f"{partial} have a part of the budget only" if partial else "",
    ]
    if not any(counts):
        return ""
    names = {cell.dataset for cell in of_table(table)} or DATASETS
    data = " ".join(f"--data {name}=PATH" for name in ALL if name in names)
    name = "all" if table == "statistics" else table
    states = ", ".join(one for one in counts if one)
    return f"*{states}; `python -m experiments {name} {data}` completes them.*"


def _absent(table: str, options: Options) -> int:
    if table == "statistics":
        paths = [options.results / name / "statistics.json" for name in DATASETS]
        return sum(not path.exists() for path in paths)
    if table in ("heatmap", "conditions"):
        return sum(not attention.is_current(cell, options) for cell in of_table(table))
    if table == "lengths":
        return 3 * len(options.lengths) - len(costs.of_lengths(options))
    cells = of_table("overall" if table == "scaling" else table)
    if table == "scaling":
        folder = options.results / "scaling"
        return sum(not (folder / f"{cell.name}.json").exists() for cell in cells)
    return sum(options.outcome(cell) is None for cell in cells)
