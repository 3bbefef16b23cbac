"""Faults, and what a person is to be told of each."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tnt_notebook.cluster.output.merger import ranks_label

#: Ends a rank, in a thread of it.
ENDS = {
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "terminated": "os.kill(os.getpid(), signal.SIGTERM)",
    "exits with 3": "os._exit(3)",
    "exits with 0": "os._exit(0)",
    "aborts": "os.abort()",
    "segmentation fault": "import ctypes; ctypes.string_at(0)",
}

#: Happens on a rank once, also where the cell is run again after a failure.
TRAP = """
flag = {flag!r} + str(comm.world().rank)
struck = comm.world().rank in {ranks} and not os.path.exists(flag)
def fault():
    open(flag, "x").close()
{code}
{start}
"""


@dataclass(frozen=True)
class Fault:
    """
    Attributes:
        name: in words.
        ranks: that it happens to; none if it happens to the cluster or the notebook.
        delay_s: when, after the cell has begun on the ranks, or, of what a notebook does, after the
            fit has begun.
        kind: who is struck: "end", "stuck", "raise" of ranks; "warden", "mpiexec", "kernel";
            "stop", "abort", "interrupt" by a person; "rest": a rank while nothing runs.
        code: what happens on the ranks.
    """

    name: str
    kind: str
    ranks: tuple[int, ...] = ()
    delay_s: float = 0.0
    code: str = ""

    def trap(self, flag: str) -> str:
        """What the cell of a fit holds, so that it happens there; nothing for other faults."""
        if self.kind not in ("end", "stuck", "raise"):
            return ""
        start = f"if struck: (timer := threading.Timer({self.delay_s:.3f}, fault)).start()"
        if self.kind == "raise":
            start = FAULTY
        code = "".join(f"    {line}\n" for line in self.code.splitlines())
        return TRAP.format(code=code, ranks=set(self.ranks), flag=flag, start=start)

    @property
    def fatal(self) -> bool:
        """Whether ranks have to be started again after it, by the fit or by the person."""
        return self.kind in ("end", "stuck", "mpiexec", "rest")

    def expected(self, training_goes_on: bool) -> list[str]:
        """Texts (regular expressions) that the notebook has to show; each of them."""
        return WORDS[self.kind](self, training_goes_on)


#: Input that raises in the middle of an epoch, where Keras reads it.
FAULTY = """
class Faulty(keras.utils.PyDataset):
    x, y = x, y
    def __len__(self): return -(-len(self.x) // 30)
    def __getitem__(self, number):
        if struck and number == 2: fault()
        return self.x[number * 30:number * 30 + 30], self.y[number * 30:number * 30 + 30]
x, y = Faulty(), None
"""


def _died(fault: Fault, goes_on: bool) -> list[str]:
    return [rf"{ranks_label(list(fault.ranks))} died"]


def _stuck(fault: Fault, goes_on: bool) -> list[str]:
    rank = rf"rank {fault.ranks[0]}"
    return [rf"waited \d+ s for {rank}|{rank} (is|was) stuck|{rank} died on \S+: it fell silent"]


WORDS: dict[str, Callable[[Fault, bool], list[str]]] = {
    "end": _died,
    "rest": _died,
    "stuck": _stuck,
    "raise": lambda fault, _: [rf"rank.* {fault.ranks[0]}\b", "of the campaign"],
    "warden": lambda fault, _: [],
    "mpiexec": lambda fault, goes_on: ["mpiexec"],
    "kernel": lambda fault, _: [],
    "stop": lambda fault, _: ["state stopped|state finished"],
    "abort": lambda fault, _: ["[Ii]nterrupt|abort|state finished"],
    "interrupt": lambda fault, _: ["state stopped|state finished"],
}


#: How often each kind is drawn, beside the others.
KINDS = {
    "end": 10, "stuck": 2, "raise": 2, "rest": 2, "warden": 1, "mpiexec": 1, "kernel": 1, "stop": 1,
    "abort": 1, "interrupt": 1,
}  # fmt: skip


def drawn(chance: Random, ranks: int) -> Fault:
    """A fault for a cluster of so many ranks."""
    delay = chance.uniform(0.0, 2.5)
    one = (chance.randrange(ranks),)
    kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
    if kind in ("end", "rest"):
        name, code = chance.choice(list(ENDS.items()))
        # Rank 0 reads for all: it is drawn as often as the others. All but one may end at once.
        several = tuple(sorted(chance.sample(range(ranks), chance.randint(1, max(1, ranks - 1)))))
        struck = several if chance.random() < 0.3 else one
        return Fault(f"{ranks_label(list(struck))} {name}", kind, struck, delay, code)
    if kind == "stuck":
        code = "os.kill(os.getpid(), signal.SIGSTOP)"
        return Fault(f"rank {one[0]} is stopped", kind, one, delay, code)
    if kind == "raise":
        error = chance.choice(["ValueError", "MemoryError", "KeyError", "OSError"])
        code = f"raise {error}('of the campaign')"
        return Fault(f"input of rank {one[0]} raises {error}", kind, one, delay, code)
    return Fault({"kernel": "the kernel is killed"}.get(kind, f"{kind}"), kind, (), delay)
