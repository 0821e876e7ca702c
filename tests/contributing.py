"""The examples of CONTRIBUTING.md, section by section."""

from __future__ import annotations

from typing import Any

from tests.test_docs import REPO, blocks_of


def run_example(section: str, **names: Any) -> dict[str, Any]:
    """Run all Python blocks of a section, in order, and return their namespace."""
    page = (REPO / "CONTRIBUTING.md").read_text("utf-8")
    _, _, rest = page.partition(f"## {section}\n")
    text = rest.partition("\n## ")[0]
    code = "\n".join(block.code for block in blocks_of(text) if block.language == "python")
    assert code, f"CONTRIBUTING.md has no code under {section!r}"
    namespace = dict(names)
    exec(compile(code, "CONTRIBUTING.md", "exec"), namespace)
    return namespace
