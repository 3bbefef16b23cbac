"""How engines are started: on this machine, on hosts reached by ssh, or as a job.

A batch system is a value, :class:`~tnt_notebook.cluster.launch.batch.System`, in a file of its own.
"""

from tnt_notebook.cluster.launch.batch import Job, System, submit
from tnt_notebook.cluster.launch.launch import Launch, launch_of
from tnt_notebook.cluster.launch.processes import Controller, MpiEngines
from tnt_notebook.cluster.launch.systems import SYSTEMS, allocation, check, chosen, nodes, tasks

__all__ = [
    "SYSTEMS",
    "Controller",
    "Job",
    "Launch",
    "MpiEngines",
    "System",
    "allocation",
    "check",
    "chosen",
    "launch_of",
    "nodes",
    "submit",
    "tasks",
]
