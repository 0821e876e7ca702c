"""Python imports this first if it is on PYTHONPATH: it puts the sanitized kernels in place.

See `make sanitize`. Subprocesses of the tests inherit the path, hence these kernels too.
"""

import importlib.util
import os
import sys
from pathlib import Path

NAME = "linrec.ops._native"
(library,) = Path(os.environ["LINREC_SANITIZED"]).glob("_native*.so")
spec = importlib.util.spec_from_file_location(NAME, library)
sys.modules[NAME] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[NAME])
