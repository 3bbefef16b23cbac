"""What a run finds in the folder of its checkpoints, and whether it goes on from there."""

from __future__ import annotations

import hashlib
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tnt_notebook.comm import World
from tnt_notebook.errors import CheckpointError
from tnt_notebook.parallel.checkpoint import folder
from tnt_notebook.parallel.checkpoint.config import Checkpoint
from tnt_notebook.parallel.consistency import agreement, seeds

#: Of what is kept; another number where files mean something else than before.
FORMAT = 2
#: Seconds after which a file must be seen by other hosts: NFS looks again after up to a minute.
_SEEN_S = 70.0


def opened(over: World, options: Checkpoint) -> tuple[Path, dict[str, Any], bool]:
    """Makes or finds the folder, and takes it: where it is, what it says of its run, and whether
    the run began earlier. Collective; raises CheckpointError on all ranks where it cannot be used,
    or holds another run."""
    assert options.folder is not None
    named = folder.named(options.folder)
    where = Path(_on_rank_0(over, named, lambda: folder.make(named)))
    check_shared(over, where)
    return where, *_on_rank_0(over, where, lambda: _taken(where, options))


def check_shared(over: World, where: Path, patience_s: float = _SEEN_S) -> None:
    """Raises CheckpointError on all ranks if one of them cannot write there, or has another folder
    of that name. Collective.
    """
    token = agreement.from_rank_0(over, secrets.randbits(40))
    seen = [where / f".seen-{token}{rank:06d}" for rank in range(over.size)]

    def write() -> None:
        with open(seen[over.rank], "x"):
            pass

    def look() -> None:
        until = time.monotonic() + patience_s
        missing = seen if over.rank == 0 else seen[:1]
        while missing := [path for path in missing if not path.exists()]:
            if time.monotonic() > until:
                raise OSError(
                    f"does not see there what rank {int(missing[0].name[-6:])} has written"
                )
            time.sleep(0.05)

    try:
        _on_all(over, where, write)
        _on_all(over, where, look)
    finally:
        seen[over.rank].unlink(missing_ok=True)


def run_of(options: Checkpoint) -> str:
    """What tells this run from others: what was said, or the text of the script."""
    if options.run:
        text = options.run.encode()
    else:
        script = getattr(sys.modules["__main__"], "__file__", None)
        text = Path(script).read_bytes() if script and Path(script).is_file() else b""
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _taken(where: Path, options: Checkpoint) -> tuple[dict[str, Any], bool]:
    if options.resume is False:
        folder.clear(where)
    about = folder.read_run(where)
    goes_on = about is not None
    if about is None:
        goes_on = _goes_on_unknown(where, options)
        about = {
            "format": FORMAT,
            "run": run_of(options),
            "began": time.time(),
            "random": seeds.state(),
            "ended": False,
        }
    elif about.get("format") != FORMAT:
        raise CheckpointError(
            f"The checkpoints in {where} were written by another version of tnt_notebook, which "
            "kept other things. Continue with that version; or pass resume=False (--resume no) to "
            "remove them and begin anew, or name another folder."
        )
    elif options.resume is None:
        _check_run(where, about, options)
    folder.remove_left_over(where)
    about["ended"] = False
    about["holder"] = secrets.token_hex(8)
    folder.write_run(where, about)
    return about, goes_on


def _goes_on_unknown(where: Path, options: Checkpoint) -> bool:
    """Whether a run goes on from checkpoints of which it is not known whose they are."""
    names = folder.whole(where)
    if not names:
        return False
    missing = f"{where} holds checkpoints ({', '.join(names[-3:])}), but not run.json, which "
    if options.resume is None:
        raise CheckpointError(
            f"{missing}identifies their run. Restore it; or pass resume=True (--resume yes) to "
            "continue from the newest, or resume=False (--resume no) to remove them and start "
            "over; or name another folder."
        )
    print(
        f"{missing}holds the random numbers that the run started with. Training continues from "
        "the newest; what is drawn outside of training may differ.",
        flush=True,
    )
    return True


def _check_run(where: Path, about: dict[str, Any], options: Checkpoint) -> None:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(about["began"]))
    choice = (
        "Name another folder, or pass resume=False (--resume no) to remove these checkpoints "
        "and start over"
    )
    if about["ended"]:
        raise CheckpointError(
            f"The run of {when} whose checkpoints are in {where} has ended. {choice}."
        )
    if about["run"] != run_of(options):
        raise CheckpointError(
            f"The checkpoints in {where} are of a run of {when} that has not ended, and that was "
            f"of another cell or script. {choice}; or pass resume=True to continue from them."
        )


def _on_rank_0(over: World, where: Path, function: Callable[[], Any]) -> Any:
    """What a function gives on rank 0, on all ranks; or its error."""
    told: list[Any] = []
    if over.rank == 0:
        try:
            told = [function(), None]
        except CheckpointError as error:
            told = [None, str(error)]
        except OSError as error:
            told = [None, f"The folder of checkpoints {where} cannot be used ({error})."]
    value, failed = agreement.from_rank_0(over, told)
    if failed is not None:
        raise CheckpointError(failed)
    return value


def _on_all(over: World, where: Path, function: Callable[[], None]) -> None:
    """Calls it on all ranks; an error on one is an error on all, that names the rank."""
    problem = None
    try:
        function()
    except OSError as error:
        problem = error.strerror or str(error)
    everyone = agreement.everyones(over, problem)
    problems = [f"rank {rank}: {found}" for rank, found in enumerate(everyone) if found]
    if problems:
        raise CheckpointError(
            f"Not all ranks can use the folder of checkpoints {where} ({'; '.join(problems[:3])}). "
            "Name one on a file system that all hosts share."
        )
