"""What a person types in the notebook: parsing and messages only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from tnt_notebook.magics.session import Session

__all__ = ["register", "sessions", "unregister"]

#: Of the shells in which the magics are.
sessions: dict[InteractiveShell, Session] = {}


def register(shell: InteractiveShell) -> None:
    """Adds the magics and their completion to a shell; imports nothing heavy."""
    from tnt_notebook.magics.bench_magic import tnt_bench
    from tnt_notebook.magics.cell_magics import tnt, tnt_pull, tnt_push
    from tnt_notebook.magics.cluster_magic import tnt_cluster
    from tnt_notebook.magics.completion import TntCompletion
    from tnt_notebook.magics.fit_magic import tnt_fit
    from tnt_notebook.magics.help import with_a_body
    from tnt_notebook.magics.own_output import leave_banner_out
    from tnt_notebook.magics.plan_magic import tnt_plan
    from tnt_notebook.magics.session import Session
    from tnt_notebook.magics.sweep_magic import tnt_sweep
    from tnt_notebook.magics.trace_magic import tnt_trace
    from tnt_notebook.magics.typed import typed

    session = sessions[shell] = Session(shell)
    lines = (tnt_cluster, tnt_push, tnt_pull, tnt_plan, tnt_bench, tnt_trace)
    for kind, magics in (("line", lines), ("cell", (tnt, tnt_fit, tnt_sweep, tnt_bench))):
        for magic in magics:
            function = session.magics[kind][magic.__name__] = typed(magic, session)
            shell.magics_manager.register_function(function, kind, magic.__name__)
    shell.input_transformers_cleanup.append(with_a_body)
    session.completion = TntCompletion(
        shell, session.magics, lambda: session.ranks, session.ask_at_once
    )
    session.completion.install()
    shell.events.register("pre_run_cell", session.tell_failures)
    leave_banner_out(shell)


def unregister(shell: InteractiveShell) -> None:
    """Stops the cluster, and removes the magics and their completion."""
    session = sessions.pop(shell, None)
    if session is None:
        return
    for kind, magics in session.magics.items():
        for name in magics:
            shell.magics_manager.magics[kind].pop(name, None)
    from tnt_notebook.magics.help import with_a_body
    from tnt_notebook.magics.own_output import show_banner

    show_banner(shell)
    shell.input_transformers_cleanup.remove(with_a_body)
    shell.events.unregister("pre_run_cell", session.tell_failures)
    if session.completion is not None:
        session.completion.remove()
    session.close()
