"""Meshes of pipelines: where replicas, stages and what divides layers lie."""

import pytest

from tnt_notebook.errors import MeshError, ScheduleError
from tnt_notebook.plan.mesh import Mesh
from tnt_notebook.plan.options import Pipeline


@pytest.mark.parametrize(
    ("pipeline", "mesh", "ranks", "becomes"),
    [
        (Pipeline(2), None, 6, "data=3,stage=2"),
        (Pipeline(2, placement="replicas"), None, 6, "stage=2,data=3"),
        (Pipeline(2), "model=2", 8, "data=2,stage=2,model=2"),
        (Pipeline(2, placement="replicas"), "data=2,model=2", 8, "stage=2,data=2,model=2"),
        (Pipeline(2), "model=2,stage=2", 4, "data=1,model=2,stage=2"),
        (Pipeline(2), "model=2,stage=2", 8, "data=2,model=2,stage=2"),
    ],
)
def test_the_mesh_of_a_pipeline(pipeline, mesh, ranks, becomes):
    found = pipeline.mesh_of(ranks, mesh and Mesh.parsed(mesh))
    assert str(found) == becomes
    positions = {found.place(rank)["stage"] for line in found.lines(["stage"]) for rank in line}
    assert positions == {*range(pipeline.stages)}
    assert all(len(line) == pipeline.stages for line in found.lines(["stage"]))


def test_what_does_not_fit_says_so():
    for pipeline, mesh, error, said in (
        (Pipeline(4), None, ScheduleError, "6 ranks cannot form pipelines of 4 stages"),
        (Pipeline(2), "stage=3", MeshError, "has 3 stages, and the pipeline 2"),
        (Pipeline(2), "model=2", MeshError, "needs a multiple of 4 ranks, and there are 6"),
        (Pipeline(2, placement="replicas"), "stage=2", MeshError, "leave out the placement"),
    ):
        with pytest.raises(error, match=said):
            pipeline.mesh_of(6, mesh and Mesh.parsed(mesh))
