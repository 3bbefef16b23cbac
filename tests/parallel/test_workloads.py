"""The scripts beside the tutorials, at the smallest size: ranks learn what one learns alone."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import keras
import numpy as np
import pytest

import tnt_notebook as tnt
from notebooks.workloads import cosmo_gan, fine_tuning, hep_cnn, language_model, resnet50, unet3d

SMALL = {
    "hep_cnn": "--samples 60 --pixels 16 --filters 4 --batch-size 16 --epochs 2",
    "language_model": "--pieces 40 --context 12 --width 8 --heads 2 --blocks 1 --batch-size 8"
    " --epochs 1",
    "cosmo_gan": "--samples 30 --pixels 8 --latent 4 --filters 4 --batch-size 8 --epochs 1",
    "resnet50": "--data {folder}/train --validation {folder}/validation --draw 8 --pixels 24"
    " --filters 4 --blocks 1 --norm all --batch-size 10 --epochs 2 --warm-up 1",
    "unet3d": "--images {folder}/scans.npy --labels {folder}/lesions.npy --held-back 1"
    " --filters 2 --levels 2 --batch-size 2 --epochs 2",
    "fine_tuning": "--model {folder}/learned.keras --pieces 40 --rank 2 --batch-size 8 --epochs 1",
}
NOT_IN_STAGES = ("cosmo_gan", "resnet50", "unet3d")  # which on two ranks has halves of volumes


def trained(name: str, folder: str, *more: str) -> dict[str, list[float]]:
    """The history of a script, run in a process that has its ranks already."""
    keras.utils.clear_session()
    main: Callable = import_module(f"notebooks.workloads.{name}").main
    policy = keras.config.dtype_policy()
    try:
        return main([*SMALL[name].format(folder=folder).split(), *more])
    finally:
        keras.config.set_dtype_policy(policy)


def learned(file: str) -> None:
    """Saves a model of the characters of Python's manual."""
    words = keras.Input((12,), dtype="int32")
    kinds = len(set(language_model.manual()))
    x = keras.layers.Embedding(kinds, 8)(words)
    x = x + keras.layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    keras.Model(words, keras.layers.Dense(kinds)(x)).save(file)


#: Whose notebooks train the same in CI.
LONG = ("cosmo_gan", "resnet50", "unet3d")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.thorough) if n in LONG else n for n in SMALL],
)
def test_a_script_reaches_on_ranks_and_in_stages_what_it_reaches_on_one(ranks, tmp_path, name):
    saved, folder = tmp_path / "model.keras", str(tmp_path)
    if name == "fine_tuning":
        ranks.run(1, learned, f"{folder}/learned.keras")
    if name == "unet3d":
        volumes, labels = unet3d.heads(4, (8, 12, 12), seed=1)
        np.save(tmp_path / "scans.npy", volumes)
        np.save(tmp_path / "lesions.npy", labels)
    (alone,) = ranks.run(1, trained, name, folder, "--save", str(tmp_path / "alone.keras"))
    assert all(np.isfinite(values).all() for values in alone.values())
    rounding = 5e-3 if name == "resnet50" else 1e-3  # of 16 bits
    for way in [()] if name in NOT_IN_STAGES else [(), ("--stages", "2")]:
        for history in ranks.run(2, trained, name, folder, *way, "--save", str(saved)):
            assert history.keys() == alone.keys()
            for key, values in alone.items():
                np.testing.assert_allclose(
                    history[key], values, atol=rounding, err_msg=f"{key} {way}"
                )
        saved.unlink()  # by rank 0, once


def test_the_largest_network_of_pictures_is_resnet_50():
    with tnt.lazy():
        own, known = resnet50.resnet(1000), keras.applications.ResNet50(weights=None)
    biases = sum(v.shape[0] for v in known.weights if v.path.endswith("conv/bias"))
    assert own.count_params() == known.count_params() - biases


def test_textures_are_written_once_and_read_in_the_order_of_their_names(tmp_path):
    resnet50.draw(tmp_path / "some", each=2, pixels=16, seed=1)
    resnet50.draw(tmp_path / "some", each=9, pixels=16, seed=1)
    files, labels, classes = resnet50.listed(tmp_path / "some")
    assert labels == [0, 0, 1, 1, 2, 2, 3, 3] and tuple(classes) == resnet50.TEXTURES
    assert files == sorted(files)
    (batch, right), *more = resnet50.pictures(tmp_path / "some", 8, 5, augmented=False)
    assert batch.shape == (5, 8, 8, 3) and len(more) == 1
    np.testing.assert_array_equal(right.numpy().argmax(1), labels[:5])
    (tmp_path / "none").mkdir()
    with pytest.raises(FileNotFoundError, match="no folders with pictures"):
        resnet50.listed(tmp_path / "none")


def test_of_a_text_a_model_gets_the_characters_that_it_knows():
    pieces = fine_tuning.pieces_of("abxcab", "abc", 5, seed=1)
    np.testing.assert_array_equal(pieces, [[0, 1, 2, 0, 1]])
    assert len(fine_tuning.programs()) > 1_000_000


def test_jets_are_the_same_for_the_same_seed_and_decays_have_two_prongs():
    images, labels = hep_cnn.jets(400, 32, seed=3)
    again, _ = hep_cnn.jets(400, 32, seed=3)
    np.testing.assert_array_equal(images, again)
    assert images.dtype == np.float32 and set(labels) == {0, 1}
    energy = np.expm1(images[..., :2]).sum(-1)
    axis = (np.arange(32) + 0.5) / 16 - 1
    from_centre = np.hypot(*np.meshgrid(axis, axis))
    far = (energy * (from_centre > 0.3)).sum((1, 2)) / energy.sum((1, 2))
    assert far[labels == 1].mean() > 2 * far[labels == 0].mean()


def test_pieces_of_a_text_are_all_of_it_and_the_same_on_every_rank():
    text = language_model.manual()[:5000]
    pieces, characters = language_model.passages(text, 41, seed=1)
    assert pieces.shape == (121, 41) and pieces.dtype == np.int32
    spelled = {"".join(characters[code] for code in piece) for piece in pieces}
    assert spelled == {text[i : i + 41] for i in range(0, 121 * 41, 41)}
    np.testing.assert_array_equal(pieces, language_model.passages(text, 41, seed=1)[0])


def test_maps_of_mass_have_the_spectrum_that_they_were_drawn_with():
    maps = cosmo_gan.mass_maps(300, 32, seed=1)
    np.testing.assert_array_equal(maps, cosmo_gan.mass_maps(300, 32, seed=1))
    assert maps.dtype == np.float32 and np.abs(maps).max() <= 1
    density = 2 * np.arctanh(np.clip(maps.astype("float64"), None, 1 - 1e-7))
    field = np.log(density - density.min() + 1e-3)
    waves, power = cosmo_gan.power_spectrum(field)
    slope, _ = np.polyfit(np.log(waves[2:10]), np.log(power.mean(0)[2:10]), 1)
    assert abs(slope - cosmo_gan.SLOPE) < 0.4
    wave = np.cos(2 * np.pi * 5 * np.arange(32) / 32)
    waves, power = cosmo_gan.power_spectrum(np.broadcast_to(wave, (32, 32))[None, ..., None])
    assert waves[power[0].argmax()] == 5


def test_heads_are_the_same_for_the_same_seed_and_lesions_are_bright():
    volumes, labels = unet3d.heads(4, (12, 24, 20), seed=1)
    for one, again in zip((volumes, labels), unet3d.heads(4, (12, 24, 20), seed=1), strict=True):
        np.testing.assert_array_equal(one, again)
    assert volumes.shape == (4, 12, 24, 20, 2) and labels.shape == (4, 12, 24, 20, 1)
    assert volumes.dtype == labels.dtype == np.float32 and set(labels.ravel()) == {0, 1}
    ill = labels[..., 0] == 1
    assert 0 < ill.mean() < 0.02
    assert volumes[ill, 1].mean() > 1 + volumes[~ill, 1].mean()
