"""Fine-tuning: a saved language model learns another text, by few weights beside those it has.

That is LoRA: what is trained are two small matrices beside each large one, whose product is added
to it (E. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, arXiv:2106.09685).
So ranks exchange a small part of what they would exchange else, and the optimizer keeps little.
The model is one of language_model.py, which knows the characters of its text; without one of
another text, the new text is that of Python's own programs.

    mpiexec -n 4 python fine_tuning.py --model language_model.keras --rank 8
    sbatch --nodes 4 --ntasks-per-node 4 train.sbatch fine_tuning.py --model language_model.keras
"""

from __future__ import annotations

import argparse
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np

#: Folders of Python's library that every installation has.
PACKAGES = ("asyncio", "email", "http", "json", "logging", "unittest", "urllib", "xml")


def programs() -> str:
    """Programs of Python's own library, 2.7 million characters or so."""
    library = Path(sysconfig.get_path("stdlib"))
    files = sorted(file for package in PACKAGES for file in (library / package).rglob("*.py"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def pieces_of(text: str, characters: str, length: int, seed: int) -> np.ndarray:
    """A text in pieces for a model that knows some characters, in an order by chance.

    Args:
        text: what is not among `characters` is left out of it.
        characters: in the order of their numbers.
        length: characters of a piece.
        seed: the same order for the same seed, on every rank.

    Returns:
        Numbers of characters (pieces, length), int32.
    """
    numbers = {character: number for number, character in enumerate(characters)}
    codes = np.array([numbers[one] for one in text if one in numbers], "int32")
    pieces = codes[: len(codes) // length * length].reshape(-1, length)
    return np.random.default_rng(seed).permutation(pieces)


def with_lora(model: Any, rank: int) -> Any:
    """The model, of which nothing is trained but what LoRA adds to each layer that takes it.

    Args:
        model: of a graph of layers.
        rank: of the product that is added to each matrix.

    Raises:
        ValueError: it has no layer that takes LoRA (Dense, EinsumDense, Embedding).
    """
    for weight in model.trainable_weights:
        weight.trainable = False
    for layer in matrices(model):
        layer.enable_lora(rank)
    if not model.trainable_weights:
        raise ValueError(f"{model.name} has no Dense, EinsumDense or Embedding to add LoRA to")
    return model


def matrices(model: Any) -> Iterator[Any]:
    """The layers of a model that take LoRA, those of attention among them."""
    for layer in model.layers:
        if hasattr(layer, "query_dense"):
            yield from (layer.query_dense, layer.key_dense, layer.value_dense, layer.output_dense)
        elif hasattr(layer, "enable_lora"):
            yield layer


def megabytes(weights: Sequence[Any]) -> float:
    """How much weights are, in MB; so much are their gradients, too, which ranks exchange."""
    return sum(int(np.prod(w.shape)) * np.dtype(w.dtype).itemsize for w in weights) / 1e6


def main(arguments: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Trains on all ranks that were started, and saves the model.

    Args:
        arguments: of the command line.

    Returns:
        Loss, in nats a character, and accuracy by epoch.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", metavar="FILE", default="language_model.keras", help="saved")
    parser.add_argument("--learned", metavar="FILE", type=Path, help="the text that it has "
        "learned, if that is not Python's manual: its characters are those it knows")  # fmt: skip
    parser.add_argument("--text", metavar="FILE", type=Path, help="in place of Python's programs")
    parser.add_argument("--pieces", type=int, help="of the text, to train on; without it, 9 of 10")
    parser.add_argument("--rank", type=int, default=8, help="of what LoRA adds to a matrix")
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--stages", type=int, default=1, help="ranks of a pipeline; 1: without")
    parser.add_argument("--checkpoint", metavar="FOLDER", help="kept there; it goes on from it")
    parser.add_argument("--save", metavar="FILE", default="fine_tuned.keras", help="the model")
    given = parser.parse_args(arguments)

    import keras

    import tnt_notebook as tnt

    keras.utils.set_random_seed(1)
    model = keras.models.load_model(given.model, compile=False)
    whole = megabytes(model.trainable_weights)
    with_lora(model, given.rank)
    if tnt.world().rank == 0:
        trained = megabytes(model.trainable_weights)
        print(f"a step exchanges gradients of {trained:.3g} MB, in place of {whole:.3g} MB")

    learned = given.learned.read_text() if given.learned else "\n".join(topics.values())
    text = given.text.read_text() if given.text else programs()
    pieces = pieces_of(text, "".join(sorted(set(learned))), model.input_shape[1] + 1, seed=1)
    held_out = len(pieces) // 10
    validation, training = pieces[:held_out], pieces[held_out:][: given.pieces]
    if given.pieces:
        validation = validation[: given.pieces // 5]

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
        model.save(given.save)  # with what LoRA has learned added to its matrices
    return history.history


if __name__ == "__main__":
    main()
