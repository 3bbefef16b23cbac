"""Records of a TFRecord file, by where they lie in it. The same from TensorFlow 2.16 to 2.21."""

from __future__ import annotations

from typing import Any

from tensorflow.python.lib.io.tf_record import tf_record_random_reader


def random_reader(path: str) -> Any:
    """A file, open for one thread at a time: ``read(offset)`` gives the record there, as bytes, and
    where it ends. It raises a ``tf.errors.DataLossError`` if the record is damaged, and IndexError
    behind the end of the file."""
    return tf_record_random_reader(path)
