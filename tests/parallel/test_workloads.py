"""The scripts beside the tutorials, at the smallest size: ranks learn what one learns alone."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import keras
import numpy as np
import pytest

from notebooks.workloads import cosmo_gan, hep_cnn, language_model

SMALL = {
    "hep_cnn": "--samples 60 --pixels 16 --filters 4 --batch-size 16 --epochs 2",
    "language_model": "--pieces 40 --context 12 --width 8 --heads 2 --blocks 1 --batch-size 8"
    " --epochs 1",
    "cosmo_gan": "--samples 30 --pixels 8 --latent 4 --filters 4 --batch-size 8 --epochs 1",
}


def trained(name: str, *more: str) -> dict[str, list[float]]:
    """The history of a script, run in a process that has its ranks already."""
    keras.utils.clear_session()
    main: Callable = import_module(f"notebooks.workloads.{name}").main
    return main([*SMALL[name].split(), *more])


@pytest.mark.parametrize("name", SMALL)
def test_a_script_reaches_on_ranks_and_in_stages_what_it_reaches_on_one(ranks, tmp_path, name):
    saved = tmp_path / "model.keras"
    (alone,) = ranks.run(1, trained, name, "--save", str(tmp_path / "alone.keras"))
    assert all(np.isfinite(values).all() for values in alone.values())
    ways = [()] if name == "cosmo_gan" else [(), ("--stages", "2")]
    for way in ways:
        for history in ranks.run(2, trained, name, *way, "--save", str(saved)):
            assert history.keys() == alone.keys()
            for key, values in alone.items():
                np.testing.assert_allclose(history[key], values, atol=1e-3, err_msg=f"{key} {way}")
        saved.unlink()  # by rank 0, once


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
