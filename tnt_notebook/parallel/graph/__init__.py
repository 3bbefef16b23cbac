"""``tnt.graph``: the traced step, what ranks have of each of its values, and where samples meet.

A rule says what a kind of op makes of what ranks have. An op without one gets its inputs whole:
exact, and no faster than on one rank. A function in Python that makes of each sample what the
sample alone says (``tf.numpy_function``) may have one, where all such functions of a program do::

    import tnt_notebook as tnt

    @tnt.graph.rule("PyFunc")
    def of_each_sample(node):
        rows = node.has[0]
        if not isinstance(rows, tnt.graph.Rows) or rows.dim > 0:
            return None                      # as if there were no rule
        return tnt.graph.Decision(wants=[rows] * len(node.inputs), gives=[rows])

A rule is called once for each op of its kind, while a step is traced. Its node has ``op``,
``inputs`` and ``outputs``; ``has``, what ranks have of each input (``SAME``, ``PART``, ``OWN``,
``SIZE`` or ``Rows``); and ``attr(name)``, ``rank(index)``, ``dims(index)``. It gives what the op
wants of each input and what it gives then, or None; ranks must not differ in that. The rules of
TensorFlow's ops are in ``tnt_notebook/parallel/graph/rules``.
"""

from tnt_notebook.parallel.graph.layouts import OWN, PART, SAME, SIZE, Rows
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.table import rule

__all__ = ["OWN", "PART", "SAME", "SIZE", "Decision", "Node", "Rows", "rule"]
