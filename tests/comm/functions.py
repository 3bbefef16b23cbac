"""Schedules that a caller gives as Python functions: right ones, and wrong ones."""

from dataclasses import replace

from tnt_notebook.comm import schedules as s

INPUT, OUTPUT, WHOLE = s.Place("input", 0), s.Place("output", 0), s.Place("data", 0)


def exchange(task: s.Task) -> s.Schedule:
    """An allreduce: each sends all it has to each."""
    return _exchange(task, range(task.size))


def exchange_backwards(task: s.Task) -> s.Schedule:
    """The same messages, added up in another order."""
    return _exchange(task, range(task.size)[::-1])


def _exchange(task: s.Task, order: range) -> s.Schedule:
    n, peers = task.count, [r for r in range(task.size) if r != task.rank]
    place = {peer: s.Place("scratch", i * n) for i, peer in enumerate(peers)}
    steps = [s.copy(0, n, to=WHOLE, from_=INPUT)]
    for peer in peers:
        steps += [s.send(0, n, peer, from_=WHOLE), s.receive(0, n, peer, to=place[peer])]
    place[task.rank] = WHOLE
    first, *others = (place[rank] for rank in order)
    if not others:
        steps.append(s.copy(1, n, to=OUTPUT, from_=first))
    for i, other in enumerate(others):
        steps.append(s.reduce(1, n, to=OUTPUT, from_=OUTPUT if i else first, with_=other))
    return s.Schedule(steps, data_count=n, scratch_count=len(peers) * n)


def look(task: s.Task) -> s.Schedule:
    """An allreduce of ranks that share memory: each reads what the others have; nothing is sent."""
    n, peers = task.count, [r for r in range(task.size) if r != task.rank]
    place = [WHOLE if r == task.rank else s.Place("data", 0, r) for r in range(task.size)]
    steps = [s.copy(0, n, to=WHOLE, from_=INPUT)]
    for peer in peers:
        steps += [s.send(0, 0, peer, from_=WHOLE), s.receive(0, 0, peer, to=WHOLE)]
    if not peers:
        steps.append(s.copy(1, n, to=OUTPUT, from_=WHOLE))
    for i in range(len(peers)):
        a = OUTPUT if i else place[0]
        steps.append(s.reduce(1, n, to=OUTPUT, from_=a, with_=place[i + 1]))
    return s.Schedule(steps, data_count=n, shared=bool(peers), alternates=bool(peers))


def relay(task: s.Task) -> s.Schedule:
    """A broadcast from rank to rank, in a ring that begins at the root."""
    n, after = task.count, (task.rank - task.root) % task.size
    steps = []
    if after == 0:
        steps.append(s.copy(0, n, to=WHOLE, from_=INPUT))
    else:
        steps.append(s.receive(0, n, (task.rank - 1) % task.size, to=WHOLE))
    if after + 1 < task.size:
        steps.append(s.send(1, n, (task.rank + 1) % task.size, from_=WHOLE))
    steps.append(s.copy(1, n, to=OUTPUT, from_=WHOLE))
    return s.Schedule(steps, data_count=n)


def circle(task: s.Task) -> s.Schedule:
    """An allgather: in each round a rank hands on the block that it has received last."""
    size, rank, at = task.size, task.rank, task.offsets
    places = [(s.Place("data", at[b]), at[b + 1] - at[b]) for b in range(size)]
    own, n = places[rank]
    steps = [s.copy(0, n, to=own, from_=INPUT)]
    for step in range(size - 1):
        given, n = places[(rank - step) % size]
        steps.append(s.send(step, n, (rank + 1) % size, from_=given))
        taken, n = places[(rank - step - 1) % size]
        steps.append(s.receive(step, n, (rank - 1) % size, to=taken))
    steps.append(s.copy(size - 1, at[-1], to=OUTPUT, from_=WHOLE))
    return s.Schedule(steps, data_count=at[-1])


def changed(number: int, on_ranks: tuple[int, ...] = (), **changes: object) -> s.Maker:
    """`exchange` with another step of this number, on some of the ranks or on all."""

    def faulty(task: s.Task) -> s.Schedule:
        made = exchange(task)
        if not on_ranks or task.rank in on_ranks:
            steps = list(made.steps)
            steps[number] = replace(steps[number], **changes)
            made = replace(made, steps=steps)
        return made

    return faulty


def circular(task: s.Task) -> s.Schedule:
    """Each waits for the one before it, and sends only then."""
    n, size = task.count, task.size
    steps = [
        s.receive(0, n, (task.rank - 1) % size, to=WHOLE),
        s.send(1, n, (task.rank + 1) % size, from_=WHOLE),
        s.copy(2, n, to=OUTPUT, from_=WHOLE),
    ]
    return s.Schedule(steps, data_count=n)


def unfinished(task: s.Task) -> s.Schedule:
    """An `exchange` whose last message rank 1 does not receive."""
    made = exchange(task)
    if task.rank == 1:
        messages = made.steps[: -(task.size - 1)]
        made = replace(made, steps=[*messages[:-1], s.copy(1, task.count, OUTPUT, WHOLE)])
    return made
