"""Where in its input a run is, so that another process gets there without training.

Keras makes an iterator of the input for every epoch, or for as long as there is data, and tells
the input when epochs begin and end. Which order a shuffled dataset has depends on how many
iterators there were, and on random numbers. So a journal of that is kept, and done again::

    events    e b t v e b t v e | b t . . .        b, e: an epoch begins, has ended
                                      ^            t, v: an iterator, of training, of validation
              done again, no batch    |
              is read                 the batches of this epoch that were seen are passed over

What was read with an iterator that is over is read again of generators only, which have no other
way to get to where they were.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import keras

from tnt_notebook.keras.adapters import is_of_arrays, is_of_generator, py_dataset_of
from tnt_notebook.keras.step_functions import EpochIterator, iterating_by
from tnt_notebook.parallel.consistency import seeds
from tnt_notebook.parallel.data import Sharded


@dataclass(frozen=True)
class Position:
    """A place in the input. Values for JSON.

    Attributes:
        events: of the epochs before the one that runs.
        taken: batches that were taken from each iterator of training, until then.
        goes_on: whether the epoch that runs goes on with the last of them.
        seen: batches of that one, as Keras counts them.
        step: batches of the epoch that runs.
        random: of input in Python, before the iterator in use was made.
        drawn: the same before each event of a PyDataset that may draw in it.
    """

    events: str = ""
    taken: tuple[int, ...] = ()
    goes_on: bool = False
    seen: int = 0
    step: int = 0
    random: dict[str, Any] | None = None
    drawn: tuple[dict[str, Any], ...] = ()

    @staticmethod
    def of_json(value: dict[str, Any]) -> Position:
        return Position(**{**value, "taken": tuple(value["taken"]), "drawn": tuple(value["drawn"])})


class Journal:
    """What one call of fit, which goes on at ``start`` if there is one, has asked of its input."""

    def __init__(
        self, train: Sharded, validation: Sharded | None, start: Position | None = None
    ) -> None:
        self._train, self._validation, self._start = train, validation, start
        self._events = ""
        self._taken: list[int] = []
        self._drawn: list[dict[str, Any]] = []
        self._epoch = Position()
        self._step = 0

    def position(self) -> Position:
        """In the epoch that runs, after the step that was noted last."""
        return replace(self._epoch, step=self._step)

    def at_the_end(self) -> Position:
        """When there is no epoch any more."""
        return Position(self._events, tuple(self._taken), drawn=tuple(self._drawn))

    def stepped(self, step: int) -> None:
        """Training has done so many batches of the epoch that runs."""
        self._step = step

    def kept_by(self) -> Any:
        """Inside this context the loops of Keras's ``fit`` keep this journal."""

        def chosen(data: Any) -> Callable[..., EpochIterator] | None:
            if data is not self._train and data is not self._validation:
                return None
            return functools.partial(_JournalIterator, self, data is self._train)

        return iterating_by(chosen)

    def replay(self, position: Position, made: Callable[[int], None]) -> None:
        """Does again what lies before an epoch, but for what was done here already. If the epoch
        goes on with the last iterator, ``made`` is called in its place, with the batches taken from
        it."""
        if not position.events.startswith(self._events):
            raise AssertionError(f"{self._events} is not how {position.events} begins")
        after = seeds.state_of_input()
        drawn = iter(position.drawn[len(self._drawn) :])
        last = position.events.rfind("t") if position.goes_on else -1
        for i in range(len(self._events), len(position.events)):
            event = position.events[i]
            if event not in "tv":
                if _draws(self._adapter(event), event):
                    seeds.set_state(next(drawn))
                _tell(self._adapter(event), event)
            elif i == last:
                made(position.taken[-1])
            else:
                taken = position.taken[position.events.count("t", 0, i)] if event == "t" else 0
                _pass_over(self._train if event == "t" else self._validation, taken)
        self._events, self._taken = position.events, list(position.taken)
        self._drawn = list(position.drawn)
        draws = not is_of_arrays(self._train.adapter)  # in Python, while the input is read
        seeds.set_state(position.random if draws and position.random else after)

    # What the iterators call ----------------------------------------------------------------------

    def taken_start(self) -> Position | None:
        """Where the first epoch begins; None for those after it."""
        start, self._start = self._start, None
        if start is not None:
            self._epoch, self._step = replace(start, step=0), start.step
        return start

    def epoch_begins(self, goes_on: bool, seen: int) -> None:
        before = self._epoch.random if goes_on else seeds.state_of_input()
        self._epoch = Position(
            self._events, tuple(self._taken), goes_on, seen, 0, before, tuple(self._drawn)
        )
        self._step = 0

    def note(self, event: str, taken: int = 0) -> None:
        if event == "t":
            self._taken.append(taken)
        elif event != "v" and _draws(self._adapter(event), event):
            self._drawn.append(seeds.state_of_input())
        self._events += event

    def took(self, batches: int) -> None:
        self._taken[-1] += batches

    def _adapter(self, event: str) -> Any:
        sharded = self._train if event in "be" else self._validation
        assert sharded is not None
        return sharded.adapter


class _JournalIterator(EpochIterator):
    """Keras's iterator over epochs, one that keeps a journal and can begin within an epoch."""

    def __init__(self, journal: Journal, trains: bool, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._journal, self._trains, self._sharded = journal, trains, self.data_adapter
        self._passed_over = 0
        self.data_adapter = _Journaled(self._sharded, journal, "be" if trains else "BE")

    def batches(self) -> Any:
        passed_over, self._passed_over = self._passed_over, 0
        self._journal.note("t" if self._trains else "v", passed_over)
        return self._sharded.without(passed_over) if passed_over else self._sharded.dataset

    def steps(self) -> Iterator[tuple[int, int, Any]]:
        if not self._trains:
            yield from super().steps()
            return
        first = 0
        start = self._journal.taken_start()
        if start is not None:
            first = start.step
            self._journal.replay(
                start,
                lambda taken: self.go_on_with(self._sharded.without(taken + first), start.seen),
            )
            if start.goes_on:
                self._journal.took(first)
            self._passed_over = 0 if start.goes_on else first
        else:
            self._journal.epoch_begins(self.goes_on, self.steps_seen if self.goes_on else 0)
        for begin, end, iterator in super().steps():
            if begin < first:
                continue
            yield begin, end, iterator
            self._journal.took(end + 1 - begin)


class _Journaled(Sharded):
    """Input whose epochs go into the journal, with the letters for beginning and end."""

    def __init__(self, sharded: Sharded, journal: Journal, letters: str) -> None:
        self.__dict__.update(vars(sharded), _journal=journal, _letters=letters)

    def on_epoch_begin(self) -> None:
        self._journal.note(self._letters[0])
        super().on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._journal.note(self._letters[1])
        super().on_epoch_end()


def _hook(event: str) -> str:
    return "on_epoch_begin" if event in "bB" else "on_epoch_end"


def _draws(adapter: Any, event: str) -> bool:
    """Whether what the adapter does at this event may draw random numbers."""
    dataset = py_dataset_of(adapter)
    own = getattr(type(dataset), _hook(event), None)
    return dataset is not None and own is not getattr(keras.utils.PyDataset, _hook(event))


def _tell(adapter: Any, event: str) -> None:
    """Tells the input; threads that would read it are not started."""
    dataset = py_dataset_of(adapter)
    if dataset is not None:
        getattr(dataset, _hook(event))()


def _pass_over(sharded: Sharded | None, taken: int) -> None:
    """What another iterator leaves behind in the input."""
    assert sharded is not None
    if is_of_arrays(sharded.adapter):
        return  # each is like the others
    iterator = iter(sharded.dataset)
    if is_of_generator(sharded.adapter):
        for _, _batch in zip(range(taken), iterator, strict=False):
            pass
