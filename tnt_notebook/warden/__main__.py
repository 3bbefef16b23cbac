"""A warden's process, see :data:`tnt_notebook.warden.PROGRAM`."""

from __future__ import annotations

import json
import os
import sys

# Last: beside the package may be others, with names that Python's own library has.
sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))

from tnt_notebook.warden.host import keep_host
from tnt_notebook.warden.keeper import keep

if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(keep_host(*sys.argv[1:]))
    sys.exit(keep(json.loads(sys.stdin.readline())))
