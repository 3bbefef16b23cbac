"""``%%tnt``, ``%tnt_push`` and ``%tnt_pull``: cells on the ranks, and their variables."""

from __future__ import annotations

from argparse import Namespace

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, magic_arguments

from tnt_notebook.magics.lists import rank_list
from tnt_notebook.magics.numbering import numbered
from tnt_notebook.magics.session import Session
from tnt_notebook.magics.syntax import check_syntax


@magic_arguments("%tnt")
@argument("--ranks", type=rank_list, metavar="R", help="which ranks: 0,2-3 (default: all)")
def tnt(session: Session, arguments: Namespace, cell: str) -> None:
    """Runs the cell on the ranks, and shows their output while it runs.

    Lines are shown in rank order, identical ones once ("ranks 0-3: ..."). When a rank raises an
    error, the others are freed, and the error is raised here. Interrupts reach the ranks.

    Examples::

        %%tnt
        import tnt_notebook as tnt
        print(tnt.world().rank)

        %%tnt --ranks 0,2-3
        x = 1
    """
    cluster = session.cluster
    check_syntax(cell)
    cluster.run(numbered("%%tnt", cell), arguments.ranks, report=print)


@magic_arguments()
@argument("names", nargs="+", metavar="NAME", help="variables of this notebook")
def tnt_push(session: Session, arguments: Namespace) -> None:
    """Copies variables from the notebook to all ranks.

    Examples::

        %tnt_push images labels
    """
    names = arguments.names
    missing = [name for name in names if name not in session.shell.user_ns]
    if missing:
        raise UsageError(f"not defined in this notebook: {', '.join(missing)}")
    session.cluster.push({name: session.shell.user_ns[name] for name in names})


@magic_arguments()
@argument("names", nargs="+", metavar="NAME", help="variables on the ranks")
@argument("--rank", type=int, default=0, metavar="R", help="rank to copy from (default: 0)")
def tnt_pull(session: Session, arguments: Namespace) -> None:
    """Copies variables from a rank into the notebook.

    A Keras History comes without its model: ``history.history`` has the numbers.

    Examples::

        %tnt_pull history
        %tnt_pull x y --rank 2
    """
    values = {name: session.cluster.pull(name, arguments.rank) for name in arguments.names}
    session.shell.push(values)
