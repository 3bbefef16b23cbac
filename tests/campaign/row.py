"""One row of a campaign: a training, a fault, and what is judged of what came after."""

import os
import re
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaign.faults import Fault
from tests.campaign.person import Person, person
from tests.campaign.trainings import TIMEOUT_S, Training
from tnt_notebook.cluster.requests.execution import GIVE_UP_AFTER_S

#: Seconds within which the notebook has to say what happened, beside those that the fit takes when
#: nothing happens. Ranks that are stuck are waited for (``--timeout``), and interrupted twice in
#: vain; ranks that are started again load TensorFlow.
_STUCK_S = TIMEOUT_S + GIVE_UP_AFTER_S + 10.0
WITHIN_S = {"stuck": _STUCK_S, "restart": _STUCK_S + 30.0}
ELSE_WITHIN_S = 15.0
#: What of these is allowed on a machine whose load is larger than this, more: that of four clusters
#: on two cores.
_LOAD = 4.0 * (os.cpu_count() or 1)
#: Kinds of faults that fits mend by themselves, where they are told to.
MENDED = ("end", "stuck", "mpiexec")


@dataclass(frozen=True)
class Row:
    number: int
    training: Training
    fault: Fault

    @property
    def goes_on(self) -> bool:
        """Whether the fit is to mend it by itself."""
        return self.training.on_failure != "stop" and self.fault.kind in MENDED

    def __str__(self) -> str:
        training, fault = self.training, self.fault
        strategy = training.strategy or "data parallel"
        return (
            f"{self.number}: {training.ranks} ranks, {training.model}, {strategy}, "
            f"{training.on_failure}; {fault.name} at {fault.delay_s:.2f} s"
        )


@dataclass
class Verdict:
    """
    Attributes:
        seconds: from the moment of the fault, or of the fit where that ended first, to the answer.
        said: what the notebook showed.
        late: whether the fit had ended before the moment of the fault.
        short: what fell short, in words.
    """

    row: Row
    seconds: float = 0.0
    said: str = ""
    late: bool = False
    short: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        verdict = "fell short" if self.short else "too late" if self.late else "as it should"
        lines = [f"{self.row} -> {self.seconds:.1f} s, {verdict}"]
        lines += [f"    {words}" for words in self.short]
        return "\n".join(lines)

    def record(self) -> dict[str, Any]:
        return {
            "row": self.row.number, "what": str(self.row), "seconds": self.seconds,
            "late": self.late, "short": self.short, "said": self.said,
        }  # fmt: skip


class Setting:
    """What rows share: a folder, and a cluster while none has broken it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()
        self._person: Person | None = None
        self._ranks = 0

    def person(self, ranks: int) -> Person:
        if self._person is None or self._ranks != ranks:
            self.end_cluster()
            self._person = self._stack.enter_context(person(self.folder, f"start -n {ranks}"))
            self._ranks = ranks
        return self._person

    def attach(self) -> Person:
        """Another kernel for the same ranks, in place of one that was killed."""
        assert self._person is not None
        cluster_id = self._person.id
        self._stack.close()
        self._person = self._stack.enter_context(person(self.folder, f"attach {cluster_id}"))
        return self._person

    def forget(self) -> None:
        """Leaves a notebook that does not answer, with all that belongs to it."""
        person, self._person = self._person, None
        if person is not None:
            person.clean()
        self._stack.close()

    def end_cluster(self) -> list[str]:
        """What is left of the cluster, if there is one, after its end."""
        if self._person is None:
            return []
        person = self._person
        said = person.type("%tnt_cluster stop")
        left = person.left()
        if left:
            person.clean()
        elif "Error" in said:
            left = [said]
        self._person = None
        self._stack.close()
        return left


def run(setting: Setting, row: Row) -> Verdict:
    """Trains, lets the fault happen, asks, mends as a person would, and trains again."""
    verdict = Verdict(row)
    try:
        _run(setting, row, verdict)
    except Exception as error:
        # A notebook that does not answer, or ranks that do not start: what came before it is told.
        verdict.short.append(f"no answer: {type(error).__name__} {error}")
    if verdict.short:  # the next row begins with new ranks
        try:
            verdict.short += [f"left: {what}" for what in setting.end_cluster()]
        except Exception as error:
            verdict.short.append(f"no end: {type(error).__name__} {error}")
            setting.forget()
    return verdict


def _run(setting: Setting, row: Row, verdict: Verdict) -> None:
    training, fault = row.training, row.fault
    person = setting.person(training.ranks)
    reference = setting.folder / re.sub(r"\W", "-", repr(training.undisturbed))
    if not reference.exists():
        _train_undisturbed(person, row, reference, verdict)
    folder = setting.folder / f"checkpoints-{row.number}"
    flag = setting.folder / f"struck-{row.number}-"
    trap = fault.trap(str(flag))
    begin = time.monotonic()
    shown = "" if fault.kind == "rest" else person.train(training, str(folder), trap)
    person, told = _strike(setting, person, fault)
    verdict.seconds = max(0.0, time.monotonic() - begin - (fault.delay_s if trap else 0.0))
    verdict.said = shown + told
    struck = not trap or any(setting.folder.glob(f"{flag.name}*"))
    verdict.late = not struck
    _judge(row, verdict)
    # A rank that does not read its input does not raise; the input is another all the same.
    if "state finished" in told and fault.kind != "raise":
        _compare(person, row, reference, verdict)
    _mend(person, row, verdict)
    usual = _train_undisturbed(person, row, reference, verdict)
    allowed = WITHIN_S.get("restart" if row.goes_on else fault.kind, ELSE_WITHIN_S)
    allowed = usual + allowed * max(1.0, os.getloadavg()[0] / _LOAD)
    if verdict.seconds > allowed:
        verdict.short.append(f"it took {verdict.seconds:.1f} s, {allowed:.0f} allowed")


def _strike(setting: Setting, person: Person, fault: Fault) -> tuple[Person, str]:
    """What happens from outside, and what the notebook says in the end."""
    if fault.kind == "rest":
        pause = f"%%tnt\nimport os, signal, threading\ndef fault():\n    {fault.code}\n"
        ranks = set(fault.ranks)
        person.type(
            f"{pause}from tnt_notebook import comm\n"
            f"if comm.world().rank in {ranks}: threading.Timer(0.2, fault).start()"
        )
        time.sleep(1.5)  # until it has happened, while nothing runs
        return person, person.type("%%tnt\nprint(1)")
    if fault.kind in ("end", "stuck", "raise"):
        return person, person.told()
    time.sleep(fault.delay_s)
    if fault.kind in ("warden", "mpiexec"):
        person.process(fault.kind).send_signal(signal.SIGKILL)
    elif fault.kind == "kernel":
        os.kill(person.notebook.manager.provisioner.process.pid, signal.SIGKILL)
        person = setting.attach()
    elif fault.kind == "interrupt":
        return person, person.interrupted_until_told()
    else:
        person.type(f"fit.{fault.kind}()")
    return person, person.told()


def _judge(row: Row, verdict: Verdict) -> None:
    if not verdict.late:
        for words in row.fault.expected(row.goes_on):
            if not re.search(words, verdict.said):
                verdict.short.append(f"it does not say {words!r}")
    if (row.goes_on or verdict.late) and "state finished" not in verdict.said:
        verdict.short.append("it did not go on to the end")


def _mend(person: Person, row: Row, verdict: Verdict) -> None:
    """What the notebook says to do when ranks are missing: one restart, and all answer."""
    ranks = row.training.ranks
    # Said by one of them: what several say is in one line only where they say it at a time.
    answers = (
        "%%tnt\nfrom tnt_notebook import comm\nnumbers = comm.world().gather_numbers(comm.rank())\n"
        f"if comm.rank() == {ranks - 1}: print('answered:', *numbers)"
    )
    whole = f"rank {ranks - 1}: answered: {' '.join(map(str, range(ranks)))}\n"
    said = person.type(answers)
    if said == whole:
        return
    if not row.fault.fatal:
        verdict.short.append(f"ranks do not answer after it: {said[-300:]}")
    said = person.type("%tnt_cluster restart --missing") + person.type(answers)
    if not said.endswith(whole):
        if row.fault.kind != "mpiexec":  # then all have ended, and restart is what is said
            verdict.short.append(f"restart --missing did not help: {said[-300:]}")
        said = person.type("%tnt_cluster restart") + person.type(answers)
        if not said.endswith(whole):
            verdict.short.append(f"restart did not help: {said[-300:]}")


def _compare(person: Person, row: Row, reference: Path, verdict: Verdict) -> None:
    """A fit that went on has the weights of one that was not disturbed; with fewer ranks up to the
    order of sums."""
    weights = person.weights(reference)
    found = re.search(r"weights \w+ apart (\S+)\n$", weights)
    allowed = 2e-4 if row.training.on_failure == "shrink" else 0.0
    if not found or float(found[1]) > allowed:
        verdict.short.append(f"its weights differ: {weights[-300:]}")


def _train_undisturbed(person: Person, row: Row, reference: Path, verdict: Verdict) -> float:
    """The same training without a fault ends with the same weights, bit for bit; seconds of it."""
    training, begin = row.training.undisturbed, time.monotonic()
    told = person.train(training, "") + person.told()
    seconds = time.monotonic() - begin
    weights = person.weights(reference)
    one = re.search(r"^ranks 0-\d+: weights (\w+) apart (\S+)$", weights)
    if "state finished" not in told or not one:
        verdict.short.append(f"afterwards a fit does not work: {told[-300:]}{weights[-300:]}")
        verdict.said += f"\n--- undisturbed\n{told}{weights}"
    elif one[2] != "0":
        verdict.short.append(f"afterwards an undisturbed fit differs by {one[2]}")
    return seconds
