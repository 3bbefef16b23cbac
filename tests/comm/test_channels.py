"""Channels that keep exchanges apart."""

import itertools
import re

import pytest
import tensorflow as tf

from tnt_notebook.comm import _kernels, channels, ops
from tnt_notebook.errors import CommunicationError


def test_ranges_do_not_overlap_and_the_backend_has_them_all():
    assert _kernels.max_channels == channels.COUNT
    taken = [(range_.first, range_.first + range_.count) for range_ in channels.RANGES]
    for before, after in itertools.pairwise(sorted(taken)):
        assert before[1] <= after[0]
    assert min(taken)[0] >= 0 and max(taken)[1] <= channels.COUNT


@pytest.mark.parametrize("parts", [1, 3, 64])
def test_parts_of_a_range_do_not_overlap(parts):
    of = [channels.GRADIENTS.part(number, parts) for number in range(parts)]
    taken = [channel for part in of for channel in map(part.__getitem__, range(part.count))]
    assert len(set(taken)) == len(taken) == channels.GRADIENTS.count // parts * parts
    assert min(taken) >= channels.GRADIENTS.first


def test_a_range_that_is_exhausted_says_its_name_and_the_number():
    part = channels.GRADIENTS.part(2, 64)
    said = re.escape(
        "The 64 channels for the gradients of a pipeline, part 3 of 64 (4224 to 4287) are "
        "exhausted: number 65 was asked for."
    )
    assert part[63] == 4287
    with pytest.raises(CommunicationError, match=said):
        part[64]


def test_a_graph_with_more_exchanges_than_its_range_is_not_traced():
    few = channels.GRADIENTS.part(0, 2048)
    with ops.channels(few), pytest.raises(CommunicationError, match="The 2 channels for"):
        for _ in range(3):
            ops.allreduce([tf.ones(1)])
