"""Products of matrices: along the dimension that is summed up samples meet, others they keep."""

from __future__ import annotations

from tnt_notebook.parallel.graph.counts import is_one
from tnt_notebook.parallel.graph.layouts import PART, SAME, Layout, Rows
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.table import rule


def _of_letters(node: Node, operands: list[str], result: str) -> Decision | None:
    """A product as einsum writes it. Samples of one letter are kept, or summed up if the result
    lacks it; where two letters have samples, those of the second are gathered."""
    if not node.rows:
        if len(node.parts) == 1:
            wants: list[Layout] = [PART if i in node.parts else SAME for i in range(len(operands))]
            return Decision(wants, [PART])
        return None
    letters = {operands[i][has.dim]: has for i, has in node.rows}
    kept = [letter for letter in letters if letter in result]
    # What is summed up on all operands makes a part with no message at all.
    all_have = [
        letter for letter in letters
        if letter not in kept and all(
            letter not in operands[i] or (isinstance(node.has[i], Rows)
                and operands[i][node.has[i].dim] == letter)  # type: ignore[union-attr]
            for i in range(len(operands))
        )
    ]  # fmt: skip
    letter = next(iter([*all_have, *sorted(kept, key=result.index), *letters]))
    rows, wants = letters[letter], []
    for i, operand in enumerate(operands):
        dims = node.dims(i)
        if letter not in operand or (dims and is_one(dims[operand.index(letter)])):
            wants.append(SAME)
        else:
            wants.append(rows.at(operand.index(letter)))
    if letter in result:
        return Decision(wants, [rows.at(result.index(letter))])
    return Decision(wants, [PART])


@rule("MatMul")
def matrices(node: Node) -> Decision | None:
    left = "ki" if node.attr("transpose_a") else "ik"
    right = "jk" if node.attr("transpose_b") else "kj"
    return _of_letters(node, [left, right], "ij")


@rule("BatchMatMulV2", "BatchMatMul", "BatchMatMulV3")
def batches_of_matrices(node: Node) -> Decision | None:
    ranks = [node.rank(0), node.rank(1)]
    if None in ranks:
        return None
    most = max(rank or 0 for rank in ranks) - 2
    batch = "abcdefgh"[:most]
    left = "ki" if node.attr("adj_x") else "ik"
    right = "jk" if node.attr("adj_y") else "kj"
    own = [batch[most - ((rank or 0) - 2) :] for rank in ranks]
    return _of_letters(node, [own[0] + left, own[1] + right], batch + "ij")


@rule("Einsum")
def einsum(node: Node) -> Decision | None:
    equation = node.attr("equation")
    operands, arrow, result = equation.partition("->")
    if not arrow or "." in equation:
        return None
    names = operands.split(",")
    if any(len(set(name)) < len(name) for name in names):
        return None
    return _of_letters(node, names, result)
