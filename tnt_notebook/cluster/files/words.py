"""Who owns a cluster and what it does, in words: what a list of clusters shows."""

from __future__ import annotations

from tnt_notebook import words
from tnt_notebook.cluster.files.lease import described
from tnt_notebook.cluster.files.record import Known


def described_owner(known: Known) -> str:
    """The notebook that owns a cluster; ``?`` where that cannot be asked from here."""
    if known.kept is None:
        return "nobody" if known.record.here else "?"
    return described(known.kept["owner"]) if known.kept["owner"] else "nobody"


def described_state(known: Known) -> str:
    """What a cluster does, and how long it lives on without an owner."""
    record, kept = known.record, known.kept
    if kept is None:
        lost = f"remove it: %tnt_cluster stop {record.id}"
        return lost if record.here else f"ask on {record.host}"
    said = "a fit goes on" if kept["busy"] else record.state
    if kept["owner"] is None:
        left = kept["ends_in_s"]
        after_fit = kept["busy"] and not left
        said += ", ends after the fit" if after_fit else f", ends in {words.about(left)}"
    return said
