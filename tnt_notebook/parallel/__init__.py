"""Engine side: Keras models that train on all ranks.

Two ways in: ``with tnt.distributed(): model.fit(...)``, which ``%%tnt_fit`` puts around a cell, and
``tnt.Model(model).fit(...)`` for scripts. Importing this package loads no TensorFlow.
"""
