"""Compile every Triton kernel ahead of time for real GPUs, without one: registers, spills, memory.

    .venv/bin/python -m benchmarks.gpu_compile  # what the file lacks; all of it takes an hour
    .venv/bin/python -m benchmarks.gpu_compile --again
    .venv/bin/python -m benchmarks.gpu_compile --widths 32 --targets sm_80 --out /tmp/some.json

The launches are those of `linrec.ops.triton.launch`, made from tensors without content, in every
configuration that tuning may choose. ptxas and AMD's assembler, which come with Triton, report what
a kernel uses. Writes results/benchmarks/gpu-compile.json after every case, so that a stopped run
goes on where it was, and the table of docs/performance.md. Rows of kernels that have changed
since are dropped.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.environment import environment
from benchmarks.results import OUT_FOLDER, PAGE, between, where, write_json
from linrec import ops
from linrec.ops import triton as gpu
from linrec.ops.rule import Rule

OUT = OUT_FOLDER / "gpu-compile.json"
# what a program may use on each: shared memory in bytes
TARGETS = {
    "sm_80": ("cuda", 80, 32, 166_912),
    "sm_90": ("cuda", 90, 32, 232_448),
    "gfx942": ("hip", "gfx942", 64, 65_536),
}
WIDTHS = (16, 32, 64, 128)
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
PASSES = ("forward", "backward")
CONFIG = ("chunk", "warps", "stages")
KERNEL_FILES = ("attention", "blocks", "features", "states")
FORMS = {  # mechanism and whether it is causal: all modes of the kernels
    "linrec, causal": ("linrec", True),
    "linrec-decay, causal": ("linrec-decay", True),
    "linrec, bidirectional": ("linrec", False),
    "linrec-decay, bidirectional": ("linrec-decay", False),
}
# large enough that a sequence has several segments
BATCH, HEADS, LENGTH, PROGRAMS = 4, 8, 2000, 432


@dataclass(frozen=True)
class Case:
    form: str
    what: str
    width: int
    dtype: str
    target: str


def launches(
    case: Case, config: Any, rule: Rule | None = None, *, resumed: bool = False
) -> list[Any]:
    """What a pass runs in this configuration, on tensors without content.

    rule: another one than that of the form. resumed: from a state, which is returned too.
    """
    from linrec.ops.triton import launch, tuning
    from linrec.ops.triton.plan import Plan, state_size

    mechanism, causal = FORMS[case.form]
    rule = rule or ops.find(mechanism).rule
    assert rule is not None
    shape = (BATCH, LENGTH, 3, HEADS, case.width)
    packed = torch.empty(shape, dtype=DTYPES[case.dtype], device="meta")
    q, k, v = packed.permute(2, 0, 3, 1, 4)
    keep = torch.empty(BATCH, LENGTH, dtype=torch.bool, device="meta")
    plan = Plan(
        rule, q, k, v, keep, keep.cumsum(1, dtype=torch.int32),
        torch.empty(HEADS, device="meta") if rule.decay else None, causal, config,
        tuning.precision_of(case.what, DTYPES[case.dtype], amd=case.target.startswith("gfx")),
        PROGRAMS,
        torch.empty(BATCH * HEADS, state_size(case.width), device="meta") if resumed else None,
    )  # fmt: skip
    if case.what == "forward":
        return launch.forward(plan, torch.empty_like(q), final=resumed)[0]
    dfinal = plan.new_state() if resumed else None
    return launch.backward(plan, torch.empty_like(q), (q, k, v), dfinal)[0]


def compiled(each: Any, target: str) -> dict[str, Any]:
    """Registers, spilled bytes and shared memory of one launch."""
    import triton
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature, attributes = {}, {}
    for at, name in enumerate(each.kernel.arg_names):
        given = each.arguments.get(name)
        signature[name] = "constexpr" if name in each.constants else type_of(given)
        # what Triton finds out at a launch: torch aligns tensors, and most strides are round
        if isinstance(given, torch.Tensor) or (isinstance(given, int) and given % 16 == 0):
            attributes[(at,)] = [["tt.divisibility", 16]]
    source = ASTSource(each.kernel, signature, each.constants, attributes)
    knobs.compilation.always_compile = knobs.nvidia.dump_ptxas_log = True
    log = io.StringIO()
    with redirect_stdout(log):
        kernel = triton.compile(
            source,
            target=GPUTarget(*TARGETS[target][:3]),
            options={"num_warps": each.config.warps, "num_stages": each.config.stages},
        )
    numbers = _amd(kernel.asm["amdgcn"]) if "amdgcn" in kernel.asm else _nvidia(log.getvalue())
    return {"kernel": kernel.metadata.name, **numbers, "shared": kernel.metadata.shared}


def types(each: Any) -> list[str]:
    """All that a compiled kernel depends on: constants, and the types of arguments."""
    constants = [f"{name}={value}" for name, value in each.constants.items()]
    return constants + [type_of(given) for given in each.arguments.values()]


def type_of(given: Any) -> str:
    names = {
        torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.uint8: "u8",
        torch.int32: "i32",
    }  # fmt: skip
    return f"*{names[given.dtype]}" if isinstance(given, torch.Tensor) else "i32"


def _nvidia(log: str) -> dict[str, int]:
    registers = re.search(r"Used (\d+) registers", log)
    spills = re.findall(r"(\d+) bytes spill", log)
    assert registers is not None, f"ptxas wrote something else: {log[-500:]}"
    return {"registers": int(registers[1]), "spilled": sum(map(int, spills))}


def _amd(assembly: str) -> dict[str, int]:
    def number(name: str) -> int:
        found = re.search(rf"\.{name}:\s+(\d+)", assembly)
        assert found is not None, f"the assembly does not say {name}"
        return int(found[1])

    spilled = 4 * number("vgpr_spill_count")  # a register has four bytes
    return {"registers": number("vgpr_count"), "spilled": spilled}


def rows_of(case: Case) -> list[dict[str, Any]]:
    """One row per configuration and kernel."""
    rows = []
    for config in configs_of(case):
        for each in launches(case, config):
            key = (case.target, each.kernel.__name__, str(each.config), *types(each))
            if key not in _seen:  # the scan is the same for all forms
                _seen[key] = compiled(each, case.target)
            rows.append({**vars(case), **config._asdict(), **_seen[key]})
    return rows


_seen: dict[tuple[str, ...], dict[str, Any]] = {}


def cases(args: argparse.Namespace) -> Iterator[Case]:
    for width in args.widths:
        for dtype in args.dtypes:
            for target in args.targets:
                for what in PASSES:
                    if what == "backward" and not has_gradients(width, dtype):
                        continue
                    for form in args.forms:
                        yield Case(form, what, width, dtype, target)


def has_gradients(width: int, dtype: str) -> bool:
    """Whether gradients of such heads are computed by the kernels."""
    return width <= gpu.MAX_WIDTH_OF_GRADIENTS[DTYPES[dtype]]


def main() -> None:
    args = _arguments()
    rows = stored(args.out)
    missing = [case for case in cases(args) if args.again or not is_in(rows, case)]
    with get_context("spawn").Pool(args.processes) as pool:
        for found in pool.imap(rows_of, missing):
            rows = merged(rows, found)
            print(sentence(found), flush=True)
            write_json(args.out, outcome(rows))
    print(f"compiled {len(missing)} cases; {args.out} has {len(rows)} kernels")
    if args.out == OUT:
        PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")


def stored(out: Path) -> list[dict[str, Any]]:
    """The rows of the file, if the kernels are still those that it was made from."""
    if not out.is_file():
        return []
    found = json.loads(out.read_text("utf-8"))
    rows: list[dict[str, Any]] = found["rows"]
    return rows if found["kernels"] == fingerprint() else []


def fingerprint() -> str:
    """Of all code that is compiled, without comments and layout."""
    folder = Path(gpu.__file__).parent
    texts = [(folder / f"{name}.py").read_text("utf-8") for name in KERNEL_FILES]
    code = "".join(ast.dump(ast.parse(text)) for text in texts)
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def configs_of(case: Case) -> tuple[Any, ...]:
    """All that tuning may choose from."""
    from linrec.ops.triton import plan, tuning

    return tuning.candidates(
        case.what, plan.block_of(case.width), DTYPES[case.dtype], hopper=case.target == "sm_90"
    )


def is_in(rows: list[dict[str, Any]], case: Case) -> bool:
    """Whether there are rows of this case in all its present configurations, and in no other."""
    there = {tuple(r[name] for name in CONFIG) for r in rows if case_of(r) == case}
    return there == set(configs_of(case))


def merged(rows: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All rows, those of one case replaced, in the order of cases."""
    others = [r for r in rows if case_of(r) != case_of(found[0])]
    return sorted(others + found, key=lambda row: _place(case_of(row)))


def case_of(row: dict[str, Any]) -> Case:
    """What was compiled."""
    return Case(*(row[field.name] for field in fields(Case)))


def _place(case: Case) -> tuple[int, ...]:
    orders = (list(DTYPES), list(TARGETS), list(PASSES), list(FORMS))
    names = (case.dtype, case.target, case.what, case.form)
    return (case.width, *(order.index(name) for order, name in zip(orders, names, strict=True)))


def outcome(rows: list[dict[str, Any]]) -> dict[str, Any]:
    import triton

    return {
        "command": "python -m benchmarks.gpu_compile",
        **environment(),
        "triton": triton.__version__,
        "kernels": fingerprint(),
        "rows": rows,
    }


def sentence(rows: list[dict[str, Any]]) -> str:
    first = rows[0]
    each = ", ".join(
        f"{r['kernel']} {r['chunk']}/{r['warps']}: {r['registers']}"
        + (f" SPILLS {r['spilled']}" if r["spilled"] else "")
        for r in rows
    )
    named = " ".join(str(first[name]) for name in ("target", "width", "dtype", "what", "form"))
    return f"{named}: {each}"


def rendered(page: str) -> str:
    """docs/performance.md with the table between its markers replaced."""
    return between(page, "gpu-compile", table(json.loads(OUT.read_text("utf-8"))))


def table(found: dict[str, Any]) -> str:
    """The kernel with the most registers of each width, over all forms and configurations."""
    targets = list(dict.fromkeys(r["target"] for r in found["rows"]))
    lines = [
        "| width | inputs | pass | " + " | ".join(targets) + " |",
        "|" + "---|" * (3 + len(targets)),
    ]
    keys = dict.fromkeys((r["width"], r["dtype"], r["what"]) for r in found["rows"])
    for width, dtype, what in keys:
        cells = []
        for target in targets:
            here = [
                r for r in found["rows"]
                if (r["width"], r["dtype"], r["what"], r["target"]) == (width, dtype, what, target)
            ]  # fmt: skip
            if not here:
                cells.append("not compiled yet")
                continue
            spilled = max(r["spilled"] for r in here)
            cells.append(
                f"{max(r['registers'] for r in here)} registers, "
                f"{max(r['shared'] for r in here) / 1024:.0f} KiB, "
                + (f"**{spilled:,} bytes spilled**" if spilled else "none spilled")
            )
        lines.append(f"| {width} | {dtype} | {what} | " + " | ".join(cells) + " |")
    kernels = f"{len(found['rows']):,} kernels by Triton {found['triton']}"
    lines += ["", f"{kernels}; {where(found)}"]
    return "\n".join(lines) + "\n"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--widths", type=int, nargs="+", default=list(WIDTHS))
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--again", action="store_true", help="compile also what the file has")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args()


if __name__ == "__main__":
    main()
