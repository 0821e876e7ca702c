"""Which attention modules of a model were replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TransplantReport:
    """Dotted names of modules, with their former class or the reason why they stay.

    Examples:
        >>> model = torch.nn.ModuleDict({"a": torch.nn.MultiheadAttention(8, 2)})
        >>> report = linrec.replace_attention(model, "linrec", dry_run=True)
        >>> dict(report.replaced), dict(report.skipped)
        ({'a': 'torch.nn.modules.activation.MultiheadAttention'}, {})
    """

    mechanism: str
    dry_run: bool
    replaced: Mapping[str, str]  # name -> its former class
    skipped: Mapping[str, str]  # name -> the reason

    def __str__(self) -> str:
        verb = "would be replaced" if self.dry_run else "replaced"
        lines = [f"{len(self.replaced)} {verb} by {self.mechanism}", *_rows(self.replaced)]
        if self.skipped:
            lines += [f"{len(self.skipped)} left as they are", *_rows(self.skipped)]
        return "\n".join(lines)


def _rows(named: Mapping[str, str]) -> list[str]:
    widest = max(map(len, named), default=0)
    return [f"  {name:<{widest}}  {text}" for name, text in named.items()]
