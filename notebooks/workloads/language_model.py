"""A language model: a Transformer that reads characters, and says which comes next.

Decoder only, with normalization before each block: A. Radford et al., "Language Models are
Unsupervised Multitask Learners" (2019). The text is the manual that every Python has, 0.5 million
characters, or a file.

    mpiexec -n 4 python language_model.py --epochs 20
    sbatch --nodes 4 --ntasks-per-node 4 train.sbatch language_model.py --text books.txt --stages 4
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np


def manual() -> str:
    """What Python's own `help` knows of its language."""
    return "\n".join(topics[name] for name in sorted(topics))


def passages(text: str, length: int, seed: int) -> tuple[np.ndarray, str]:
    """A text in pieces, in an order by chance, which is the same on every rank.

    Args:
        text: of at least `length` characters; what is left at its end is left out.
        length: characters of a piece.

    Returns:
        Numbers of characters (pieces, length), int32; and the characters, in the order of their
        numbers.
    """
    characters, codes = np.unique(np.array(list(text)), return_inverse=True)
    pieces = codes[: len(codes) // length * length].reshape(-1, length).astype("int32")
    return np.random.default_rng(seed).permutation(pieces), "".join(characters)


def main(arguments: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Trains on all ranks that were started, and saves the model.

    Args:
        arguments: of the command line.

    Returns:
        Loss, in nats a character, and accuracy by epoch.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", metavar="FILE", type=Path, help="in place of Python's manual")
    parser.add_argument("--pieces", type=int, help="of the text, to train on; without it, 9 of 10")
    parser.add_argument("--context", type=int, default=256, help="characters that it sees")
    parser.add_argument("--width", type=int, default=384, help="numbers that stand for a character")
    parser.add_argument("--heads", type=int, default=6, help="of each attention")
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--stages", type=int, default=1, help="ranks of a pipeline; 1: without")
    parser.add_argument("--checkpoint", metavar="FOLDER", help="kept there; it goes on from it")
    parser.add_argument("--save", metavar="FILE", default="language_model.keras", help="the model")
    given = parser.parse_args(arguments)

    import keras
    from keras import layers

    import tnt_notebook as tnt

    keras.utils.set_random_seed(1)
    text = given.text.read_text() if given.text else manual()
    pieces, characters = passages(text, given.context + 1, seed=1)
    held_out = len(pieces) // 10
    validation, training = pieces[:held_out], pieces[held_out:][: given.pieces]
    if given.pieces:
        validation = validation[: given.pieces // 5]

    seen = keras.Input((given.context,), dtype="int32")
    place = keras.ops.cumsum(keras.ops.ones_like(seen), axis=1) - 1
    x = layers.Embedding(len(characters), given.width)(seen)
    x = x + layers.Embedding(given.context, given.width)(place)
    for _ in range(given.blocks):
        y = layers.LayerNormalization()(x)
        attention = layers.MultiHeadAttention(given.heads, given.width // given.heads)
        x = x + attention(y, y, use_causal_mask=True)
        y = layers.LayerNormalization()(x)
        y = layers.Dense(4 * given.width, activation="gelu")(y)
        x = x + layers.Dense(given.width)(y)
    x = layers.LayerNormalization()(x)
    model = keras.Model(seen, layers.Dense(len(characters))(x))

    pipeline = tnt.Pipeline(given.stages, micro_batches=4) if given.stages > 1 else None
    checkpoint = tnt.Checkpoint(given.checkpoint) if given.checkpoint else None
    model = tnt.Model(model, pipeline=pipeline, checkpoint=checkpoint)
    model.compile(
        keras.optimizers.AdamW(1e-3, clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    history = model.fit(
        training[:, :-1], training[:, 1:], batch_size=given.batch_size, epochs=given.epochs,
        validation_data=(validation[:, :-1], validation[:, 1:]), verbose=2,
    )  # fmt: skip
    if tnt.world().rank == 0:
        model.save(given.save)
    return history.history


if __name__ == "__main__":
    main()
