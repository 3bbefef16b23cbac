"""How engines are started: on this machine, on hosts reached by ssh, or as a job.

A batch system is a value, :class:`~tnt_notebook.cluster.launch.batch.System`, in a file of its own.
"""
