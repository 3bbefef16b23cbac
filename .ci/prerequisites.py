"""Says what this machine lacks before the build fails of it. Run by ``make setup``."""

import os
import shutil
import sys
import sysconfig

APT = "apt-get install python3-venv python3-dev g++"


def missing() -> list[str]:
    """One sentence for each thing that is not there."""
    found = []
    if sys.version_info < (3, 11):  # noqa: UP036  whoever starts this may have an older one
        version = sys.version.split()[0]
        found.append(
            f"{sys.executable} is Python {version}; 3.11 or newer is needed. "
            "Name another one: make PYTHON=python3.12 ..."
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        found.append("Python's venv and pip are not installed (Debian: python3-venv).")
    if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
        found.append("Python's C headers are not installed (Debian: python3-dev).")
    if not any(map(shutil.which, filter(None, [os.environ.get("CXX"), "c++", "g++", "clang++"]))):
        found.append("There is no C++ compiler (Debian: g++).")
    return found


if __name__ == "__main__":
    sentences = missing()
    if sentences:
        sys.exit("\n".join([*sentences, f"On Debian and Ubuntu all of it comes with: {APT}"]))
