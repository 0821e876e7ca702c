"""The tables of data with repeats: a model with and without a repeat head, and baselines."""

from __future__ import annotations

from experiments.cells import Cell, repeats
from experiments.outcomes import Options, Outcome
from experiments.quality import arrow
from experiments.tables import Layout, Row, table
from linrec.evaluation.by_seen import NEW, SEEN
from linrec.evaluation.verdict import shown_p

KEPT = "test-full-seen"
LABELS = {"on": "model with a repeat head", "off": "the same model without it"}


def repeats_table(dataset: str, options: Options) -> str:
    """One row per model and baseline; empty if no model of the dataset is trained."""
    known = {cell: found for cell in repeats(dataset) if (found := options.outcome(cell))}
    if not known:
        return ""
    first = next(iter(known.values()))["evaluations"][KEPT]
    rows = [_model(cell, outcome, options) for cell, outcome in known.items()]
    rows += [_baseline(name, first) for name in first["baselines"]]
    kinds = [f"NDCG@10, {kind} ({first['by_seen'][kind]['n_targets']:,})" for kind in (SEEN, NEW)]
    columns = ("NDCG@10", "Recall@10", *kinds, "NDCG@10, time unknown")
    rows = [_without_last(row) for row in rows] if _untimed(known) else rows
    layout = Layout(("",), columns[:-1] if _untimed(known) else columns)
    left_out = [f"`{name}` is left out: {why}." for name, why in first["left_out"].items()]
    lines = [_protocol(first), table(layout, rows)]
    lines += [_verdict(cell, outcome) for cell, outcome in known.items()]
    return "\n\n".join([*lines, *left_out])


def _untimed(known: dict[Cell, Outcome]) -> bool:
    return all(f"{KEPT}-unknown-time" not in outcome["evaluations"] for outcome in known.values())


def _without_last(row: Row) -> Row:
    return Row(row.labels, row.values[:-1], signs=row.signs[:-1], note=row.note)


def _model(cell: Cell, outcome: Outcome, options: Options) -> Row:
    figures = outcome["evaluations"][KEPT]
    unknown = outcome["evaluations"].get(f"{KEPT}-unknown-time")
    values = [figures["metrics"][metric]["mean"] for metric in ("ndcg@10", "recall@10")]
    values += [figures["by_seen"][kind]["metrics"]["ndcg@10"] for kind in (SEEN, NEW)]
    values.append(None if unknown is None else unknown["metrics"]["ndcg@10"]["mean"])
    against = figures["against"]
    sign = arrow(against["p"], against["difference"]["mean"])
    label = LABELS[str(cell.overrides["repeat_head"])]
    return Row((label,), values, signs=[sign, "", "", "", ""], note=options.note(cell))


def _baseline(name: str, figures: Outcome) -> Row:
    own = figures["baselines"][name]
    parts = [figures["by_seen"][kind]["baselines"][name]["ndcg@10"] for kind in (SEEN, NEW)]
    return Row((f"`{name}`",), [own["ndcg@10"], own["recall@10"], *parts, own["ndcg@10"]],
               signs=[""] * 5)  # fmt: skip


def _protocol(figures: Outcome) -> str:
    """What was predicted, for whom, among how many."""
    several = figures["n_targets"] is not None
    targets = f", {figures['n_targets']:,} targets" if several else ""
    predicted = "next basket" if figures["targets"] == "basket" else "last event"
    count = figures["n_targets"] if several else figures["n_users"]
    share = figures["n_targets_seen_before"] / count
    time = "known" if figures["request_time"] == "known" else "not read by the model"
    return (
        f"{figures['n_users']:,} users{targets}, the {predicted} of each, among all "
        f"{figures['n_items']:,} items; {share:.1%} of the targets were seen before; request time "
        f"{time}."
    )


def _verdict(cell: Cell, outcome: Outcome) -> str:
    found = outcome["evaluations"][KEPT]["against"]
    low, high = found["difference"]["low"], found["difference"]["high"]
    return (
        f"{LABELS[str(cell.overrides['repeat_head'])].capitalize()} against the best baseline, "
        f"`{found['baseline']}`: difference of NDCG@10 {found['difference']['mean']:+.4f} "
        f"({low:+.4f} to {high:+.4f}), paired t-test p {shown_p(found['p'])}."
    )
