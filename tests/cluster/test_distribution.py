"""A cell that says by keras.distribution how a model is distributed."""

import keras
import pytest

from tnt_notebook.errors import RankError

CELL = """
import keras, numpy as np
kd = keras.distribution
layout_map = kd.LayoutMap(kd.DeviceMesh((1, 2), ("batch", "model"), kd.list_devices()))
layout_map["d1/kernel"] = (None, "model")
layout_map["d1/bias"] = ("model",)
layout_map["d2/output"] = ("batch", None)
x = keras.Input((8,))
y = keras.layers.Dense(2, name="d2")(keras.layers.Dense(5, "relu", name="d1")(x))
model = keras.Model(x, y)
model.compile("sgd", "mse")
kd.set_distribution(kd.ModelParallel(layout_map=layout_map, batch_dim_name="batch"))
try:
    model.fit(np.ones((6, 8)), np.ones((6, 2)), batch_size=3)
    print(kd.list_devices(), kd.get_device_count())
finally:
    kd.set_distribution(None)
"""


def test_ranks_are_devices_in_cells_alone(pair, capsys):
    fit = pair.fit(CELL, {})
    assert fit.wait(300).state == "finished"
    assert "['cpu:0', 'cpu:1'] 2" in capsys.readouterr().out
    assert fit.model.get_layer("d1").kernel.shape == (8, 5)
    assert keras.distribution.list_devices() == ["cpu:0"]
    both = pair.fit(CELL, {"mesh": "model=2"})
    with pytest.raises(RankError, match="ModelParallel.*and a mesh is given"):
        both.wait(300)
