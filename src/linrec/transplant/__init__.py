"""Linear attention inside other people's Transformers, by one line.

A framework is one file with an `Adapter` and one line in `replace.ADAPTERS`.
"""

from linrec.transplant.adapter import Adapter, Place
from linrec.transplant.replace import ADAPTERS, replace_attention
from linrec.transplant.report import TransplantReport

__all__ = ["ADAPTERS", "Adapter", "Place", "TransplantReport", "replace_attention"]
