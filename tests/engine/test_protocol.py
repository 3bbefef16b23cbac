"""Names that the notebook and its ranks share."""

import pytest

from tnt_notebook.protocol import Call


@pytest.mark.parametrize("call", Call, ids=str)
def test_ranks_have_every_function_that_the_notebook_calls(call):
    assert callable(eval(call.expression))
