"""Linear attention inside other people's Transformers, by one line.

A framework is one file with an `Adapter` and one line in `replace.ADAPTERS`.
"""

from linrec.transplant.adapter import Adapter, NamedModule
from linrec.transplant.replace import ADAPTERS, replace_attention
from linrec.transplant.report import TransplantReport

__all__ = ["ADAPTERS", "Adapter", "NamedModule", "TransplantReport", "replace_attention"]
