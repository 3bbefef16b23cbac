"""What the calls of one cell, or of one ``tnt.Model``, share."""

from __future__ import annotations

import contextlib
import functools
import math
import weakref
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field

import keras

from tnt_notebook.comm import World, stop
from tnt_notebook.errors import MeshError, ModelError
from tnt_notebook.parallel.checkpoint.run import RunCheckpoints
from tnt_notebook.parallel.data import Replica
from tnt_notebook.parallel.exchange.named import exchange_of, name_of
from tnt_notebook.parallel.layers.layout_map import Wanted
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.observe.progress import Progress, Report
from tnt_notebook.parallel.step.step import Setting, Votes
from tnt_notebook.parallel.training.compiled_functions import DistributedFunctions
from tnt_notebook.parallel.training.fit_as import FitAs
from tnt_notebook.parallel.training.fit_checkpoints import FitCheckpoints
from tnt_notebook.parallel.training.keras_distribution import Division
from tnt_notebook.parallel.training.placement import Placement, placed
from tnt_notebook.plan.fit_options import FitOptions
from tnt_notebook.plan.hints import memory_of
from tnt_notebook.plan.mesh import DATA, Mesh


@dataclass
class Run:
    """One finished call of ``fit``, ``evaluate`` or ``predict``.

    Attributes:
        model: None where others have run since, so that it can go when nobody else needs it.
        stopped: whether it ended before its end.
        diverged: since when its loss was NaN, in words, on rank 0; "" where it was not.
    """

    kind: str
    model: keras.Model | None
    history: dict[str, list[float]] = field(default_factory=dict)
    stopped: bool = False
    diverged: str = ""


@dataclass
class Session:
    """The life of distributed training: its models' functions, and what has run.

    Attributes:
        functions: of models, by id; models keep them.
        alone: whether Keras is to work on this rank alone just now, as inside a callback.
        progress: of the call that is running.
        checkpoints, fit_checkpoints: of this run, if it keeps any; of the fit that is running.
        fit_as: what to change about each fit.
        division: what a distribution of Keras says, during a call for which one is set.
        planned: of models that have been planned for by now, the session in which they are trained.
        can_be_ended: whether a person's request to end a fit is for those in here, too.
    """

    over: World
    options: FitOptions
    report: Report | None = None
    quiet: bool = False
    runs: list[Run] = field(default_factory=list)
    alone: bool = False
    progress: Progress | None = None
    functions: MutableMapping[int, DistributedFunctions] = field(
        default_factory=weakref.WeakValueDictionary
    )
    checkpoints: RunCheckpoints | None = None
    fit_checkpoints: FitCheckpoints | None = None
    fit_as: FitAs = field(default_factory=FitAs)
    division: Division | None = None
    planned: MutableMapping[keras.Model, Session] = field(default_factory=weakref.WeakKeyDictionary)
    can_be_ended: bool = True

    def __post_init__(self) -> None:
        self.exchange = exchange_of(self.options.exchange, self.options.bucket_mb)
        self.pipeline = self.options.pipeline
        self.mesh = self.options.mesh_of(self.over.size)
        self.layouts: Wanted = self.options.layouts or {}
        if self.options.shares and not self.exchange.keeps_ranks_equal:
            raise ModelError(
                f"The exchange {name_of(self.exchange)} lets replicas train weights of their own, "
                "which count alike: use shares with one that keeps them equal, such as allreduce."
            )
        self._generation = self.over.generation
        self._ranks: dict[Mesh, MeshRanks] = {}
        self._divided: dict[int, tuple[str, ...]] = {}  # of which models functions were made so

    @contextlib.contextmanager
    def divided(self, model: keras.Model, division: Division | None) -> Iterator[None]:
        """Inside, a call of a model goes by what a distribution of Keras says; None: there is none.

        Raises:
            MeshError: something else says how models are divided.
        """
        own = {
            "a pipeline is": self.pipeline, "a mesh is": self.mesh,
            "shares are": self.options.shares,
        }  # fmt: skip
        given = next((name for name, said in own.items() if said is not None), None)
        if division is not None and given is not None:
            raise MeshError(
                f"A distribution of Keras is set ({division.says[0]}), and {given} given: use "
                "one of them. keras.distribution.set_distribution(None) unsets it."
            )
        says = division.says if division is not None else ()
        if self._divided.get(id(model), ()) != says:
            self.forget(model)
        self._divided[id(model)] = says
        if division is None:
            yield
            return
        self.division, self.mesh, self.layouts = division, division.mesh, division.layouts
        try:
            yield
        finally:
            self.division, self.mesh, self.layouts = None, None, {}

    def forget(self, model: keras.Model) -> None:
        """Forgets what it has built for a model, which then is whole. Collective."""
        if id(model) in self.functions:
            self.gather(model)
            self.functions.pop(id(model)).forget()

    def renew(self) -> None:
        """Forgets what it has built for ranks of which some have died, or were started again."""
        if self._generation != self.over.generation:
            self._generation = self.over.generation
            self._ranks.clear()
            self._remove_functions()

    @property
    def whole_mesh(self) -> Mesh:
        """The ranks as a mesh, that of whole copies too."""
        return Mesh(**{DATA: self.over.size}) if self.mesh is None else self.mesh

    @property
    def in_blocks(self) -> bool:
        """Whether ranks may need blocks of samples alone."""
        return self.whole_mesh.is_divided and self.pipeline is None

    @property
    def ranks(self) -> MeshRanks:
        """The mesh at work. Collective when first asked for."""
        mesh = self.whole_mesh
        if mesh not in self._ranks:
            self._ranks[mesh] = MeshRanks(self.over, mesh)
        return self._ranks[mesh]

    @property
    def replicas(self) -> list[Replica]:
        """Of the replicas of the model that share the data, the one of each rank."""
        mesh = self.whole_mesh
        places = (mesh.place(rank) for rank in range(mesh.size))
        shares = self.options.shares or ()
        return [Replica(place[DATA], mesh.along(DATA), shares) for place in places]

    @property
    def replica(self) -> Replica | None:
        """The one of this rank; ``None`` if there is no other rank."""
        return self.replicas[self.over.rank] if self.over.size > 1 else None

    @property
    def is_alone(self) -> bool:
        """Whether that is so in any session of the cell: callbacks may call other models."""
        return self.alone or any(own.alone for own in self.planned.values())

    @contextlib.contextmanager
    def on_this_rank_alone(self) -> Iterator[None]:
        """Inside, the methods of models do what they do on one process."""
        before, self.alone = self.alone, True
        try:
            yield
        finally:
            self.alone = before

    def functions_of(
        self, model: keras.Model, batch_size: int | None = None
    ) -> DistributedFunctions:
        """The distributed functions of a model, in place."""
        functions = self.functions.get(id(model))
        if functions is None:
            if self.division is not None and self.mesh is None:
                self.division.layouts.check_whole()
            functions = DistributedFunctions(
                model, self._wants, self._take_news, self._due_in,
                functools.partial(self._placed, model, batch_size),
            )  # fmt: skip
            self.functions[id(model)] = functions
        functions.install()
        return functions

    def _placed(self, model: keras.Model, batch_size: int | None) -> Placement:
        setting = Setting.of(self.over, self.exchange, model, self.options.batch_norm)
        return placed(
            setting, model, self.ranks, self.pipeline, self.layouts, batch_size,
            memory_of(self.options.memory_limit),
        )  # fmt: skip

    def gather(self, model: keras.Model, ranks: Iterable[int] | None = None) -> None:
        """Makes the model whole, where each rank trains a part of it: on some ranks, or on all
        unless it was built with ``tnt.lazy()``. Collective."""
        functions = self.functions.get(id(model))
        if functions is not None:
            functions.weights.gather(ranks)

    def ran(self, run: Run) -> None:
        """Adds a run. The last model that was trained is kept, and the last that has run."""
        for earlier in self.runs:
            if run.kind == "fit" or earlier.kind != "fit":
                earlier.model = None
        self.runs.append(run)

    @contextlib.contextmanager
    def reported_by(self, cell: Session) -> Iterator[None]:
        """Inside, runs belong to the session of a cell, which shows them."""
        before = self.report, self.quiet, self.runs, self.checkpoints
        self.report, self.quiet, self.runs = cell.report, cell.quiet, cell.runs
        self.fit_as, own_fits = cell.fit_as, self.fit_as
        self.checkpoints = self.checkpoints or cell.checkpoints
        try:
            yield
        finally:
            self.report, self.quiet, self.runs, self.checkpoints = before
            self.fit_as = own_fits

    def close(self) -> None:
        """Gives all models their own functions back."""
        for own in self.planned.values():
            if own is not self:
                own.close()
        self._remove_functions()
        if self.checkpoints is not None:
            self.checkpoints.close()

    def _remove_functions(self) -> None:
        for functions in list(self.functions.values()):
            functions.forget()
        self.functions.clear()

    def _wants(self, phase: str) -> Votes:
        sample = keep = leave = diverged = False
        end = self.can_be_ended and stop.end.is_set()
        if self.progress is not None and phase == self.progress.phase:  # not validation of a fit
            sample = self.progress.wants_a_sample()
            diverged = self.progress.wants_to_stop
            if self.fit_checkpoints is not None:
                keep, leave = self.fit_checkpoints.wants()
        return Votes(*map(float, (end, sample, keep, leave, diverged)))

    def _due_in(self) -> float:
        """In how many training steps at most this rank is to be asked again."""
        return math.inf if self.fit_checkpoints is None else self.fit_checkpoints.due_in()

    def _take_news(self, model: keras.Model, phase: str, votes: Votes, samples: int) -> None:
        progress = self.progress
        if progress is not None and phase == progress.phase:
            progress.count(samples)
            if votes.sample > 0:
                progress.sample()
            if self.fit_checkpoints is not None:
                self.fit_checkpoints.decided(votes.keep > 0, votes.leave > 0)
        if votes.stop > 0:
            stop.agreed.set()
        if votes.stop > 0 or votes.diverged > 0:
            model.stop_training = model.stop_evaluating = model.stop_predicting = True
            if progress is not None:
                progress.stopped = True
