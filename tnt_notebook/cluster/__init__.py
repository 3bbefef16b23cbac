"""Notebook side: start, find, watch, interrupt and stop engines, and run cells on them.

Loads neither TensorFlow nor MPI: only data crosses to the engines.
"""

from tnt_notebook.cluster.cluster import Cluster
from tnt_notebook.cluster.fit import Fit
from tnt_notebook.cluster.status import Links, RankStatus

__all__ = ["Cluster", "Fit", "Links", "RankStatus"]
