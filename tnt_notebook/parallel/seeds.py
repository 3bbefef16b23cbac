"""Random numbers: the same on all ranks wherever they decide on data, order or initial weights."""

from __future__ import annotations

import pickle
import random

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context as tf_context

from tnt_notebook.comm import World


def synchronise(over: World) -> None:
    """Gives all ranks the random state of rank 0: Python's, NumPy's and TensorFlow's.

    A seed that was set is kept: states that agree are not changed. Where TensorFlow has no seed, it
    gets one, since without it datasets would shuffle differently on every rank.
    """
    if over.size == 1:
        return
    if tf_context.global_seed() is None:
        tf.random.set_seed(random.getrandbits(31))
    context = tf_context.context()
    state = (random.getstate(), np.random.get_state(), context._seed, context._rng.getstate())
    # From rank 0 of the same MPI job, over its own communicator.
    state = pickle.loads(over.broadcast_bytes(pickle.dumps(state)))
    random.setstate(state[0])
    np.random.set_state(state[1])
    if context._seed != state[2]:
        tf.random.set_seed(state[2])
    context._rng.setstate(state[3])
