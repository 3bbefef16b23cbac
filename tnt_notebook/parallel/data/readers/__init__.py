"""Readers of files: each gives a ``tf.data.Dataset`` of samples, of which a rank reads its own.

As ``tnt.data``. They work in any process, with Keras alone too.
"""

from __future__ import annotations

from tnt_notebook.parallel.data.readers.damage import Damage, skipped
from tnt_notebook.parallel.data.readers.hdf5_files import hdf5
from tnt_notebook.parallel.data.readers.image_folders import classes_of, images
from tnt_notebook.parallel.data.readers.numpy_files import arrays
from tnt_notebook.parallel.data.readers.parquet_files import parquet
from tnt_notebook.parallel.data.readers.staging import staged
from tnt_notebook.parallel.data.readers.tfrecord_files import tfrecords
from tnt_notebook.parallel.data.readers.zarr_stores import zarr

__all__ = [
    "Damage", "arrays", "classes_of", "hdf5", "images", "parquet", "skipped", "staged", "tfrecords",
    "zarr",
]  # fmt: skip
