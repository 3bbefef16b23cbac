"""Every kind of failure a person can meet, one class each.

Messages are sentences: what happened, on which rank, what to do.
"""

from __future__ import annotations

from tnt_notebook.error_text import own_lines, without_colours


class TntError(Exception):
    """Base class of all errors raised on purpose by tnt_notebook."""

    #: Whether the other ranks know already: they raise as well, or raised first. Any other error
    #: on one rank has to free those that wait for it.
    peers_know = False

    def _render_traceback_(self) -> list[str]:
        # IPython's protocol, on ranks and in the notebook: the sentence says what to do, and of
        # the calls only the person's own matter.
        return [*own_lines(self.__traceback__), f"{type(self).__name__}: {self}"]


class ClusterError(TntError):
    """Engines could not be started, reached or stopped."""


class DeathError(ClusterError):
    """Ranks have died, or their hosts, or the job they were of.

    Args:
        message: which, where, and what is known of it.
        ranks: which.
    """

    def __init__(self, message: str, ranks: list[int]) -> None:
        super().__init__(message)
        self.ranks = ranks


class StuckError(ClusterError):
    """A rank did not take part within the time-out, and could not be freed: all were started
    anew."""


class EndedError(ClusterError):
    """The ranks were stopped, started anew or taken over while something ran on them: somebody has
    asked for it."""


class NoClusterError(ClusterError):
    """A cell wants ranks, and no cluster is running."""


class RankError(TntError):
    """Code of a cell raised on one or more ranks.

    Args:
        message: one line that names the ranks and the error.
        rendered: lines that a notebook shows in place of a local traceback.
        whole: all that the error says, in paragraphs, and the line of the cell in which it was
            raised, for who does not show ``rendered``; default: the message.
        kinds: the names of the classes of what ranks have raised.
    """

    def __init__(
        self,
        message: str,
        rendered: list[str] | None = None,
        whole: str | None = None,
        kinds: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(message)
        self.rendered = rendered
        self.whole = whole or message
        self.kinds = kinds

    @property
    def interrupted(self) -> bool:
        """Whether ranks raised because a person has pressed interrupt."""
        return self.kinds - {PeerError.__name__} == {KeyboardInterrupt.__name__}

    @property
    def traceback(self) -> str:
        """``rendered`` as plain text."""
        return without_colours("\n".join(self.rendered or []))

    def _render_traceback_(self) -> list[str]:
        # IPython's protocol: the ranks' tracebacks say more than the notebook's own frames.
        return [*(self.rendered or []), f"{type(self).__name__}: {self}"]


class UnreadableError(TntError):
    """Python cannot read a cell; nothing of it was sent.

    Args:
        message: what is wrong, as Python says it.
        place: lines that show where.
    """

    def __init__(self, message: str, place: list[str]) -> None:
        super().__init__(message)
        self.place = place

    def _render_traceback_(self) -> list[str]:
        return [*self.place, f"{self} (nothing was sent to the ranks)"]


class Interrupted(KeyboardInterrupt):
    """A person has interrupted a magic; the message says in what state that leaves things. Shown
    without the calls of this package and of Python's that were interrupted."""

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]


class NoInputError(TntError):
    """A cell on a rank wants to read what a person types."""


class StalledError(RankError):
    """A rank did not take part in an operation within the time-out; all have been freed."""


class PeerError(TntError):
    """This rank was freed from a wait because another rank failed or left."""

    peers_know = True


class CommunicationError(TntError):
    """A collective could not complete: time-out, mismatch between ranks, transport failure."""


class TimedOutError(CommunicationError):
    """A collective waited too long for another rank."""


class RulesError(TntError):
    """The table that says which algorithm a collective uses is broken. Raised on all ranks."""

    peers_know = True


class ModelError(TntError):
    """The model cannot be trained distributed as it stands; the message says what to change."""


class MemoryLimitError(ModelError):
    """A rank would need more memory than it may take.

    Attributes:
        needs: bytes that it would need at least; 0: not said.
    """

    def __init__(self, message: str, needs: float = 0) -> None:
        super().__init__(message)
        self.needs = needs


class ScheduleError(TntError):
    """A pipeline schedule is incomplete, out of order, or never ends."""


class MeshError(TntError):
    """A mesh that these ranks cannot form, or a layout that a layer cannot have on it."""


class NetworkError(TntError):
    """A file that should describe a network cannot be read, or its network has too few ranks."""


class DisagreementError(ModelError):
    """The ranks want to do different things. Raised on all of them."""

    peers_know = True


class NothingToDoError(ModelError):
    """A cell of ``%%tnt_fit`` called neither fit, evaluate nor predict. Raised on all ranks."""

    peers_know = True


class DataError(TntError):
    """The input cannot be shared between the ranks."""


class DifferentDataError(DataError):
    """The ranks read different data. Raised on all of them."""

    peers_know = True


class DownloadError(DataError):
    """A file that Keras downloads, such as weights, could not be had."""


class TraceError(TntError):
    """A run that was kept cannot be found or read."""


class PlanError(TntError):
    """A plan that was saved cannot be read, or has no such part; the message says what there is."""


class SweepError(TntError):
    """A sweep cannot be as it is asked for, or its study cannot be kept; the message says what to
    do."""


class TrackerError(TntError):
    """Figures of a fit cannot be logged: a package is missing, or a tracker refuses."""


class StudyError(TntError):
    """A study of scaling cannot be as it is asked for: the cluster is too small, or the cell does
    not scale; the message says what to do."""


class CheckpointError(TntError):
    """Checkpoints cannot be kept or read; the message says what to do. Where ranks have agreed on
    it, raised on all of them."""

    peers_know = True


class SuspendedError(TntError):
    """Training was left on request, with a checkpoint to go on from. Raised on all ranks."""

    peers_know = True


class StoppedError(TntError):
    """Somebody has asked for the end of training, between two steps of a loop of one's own. Raised
    on all ranks; a cell of ``%%tnt_fit`` ends with it as stopped."""

    peers_know = True


class DivergenceError(TntError):
    """Weights that must be identical on all ranks are not. Raised on all of them."""

    peers_know = True
