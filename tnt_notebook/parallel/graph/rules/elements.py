"""Ops that compute element by element; operands are repeated where they have one entry."""

from __future__ import annotations

from dataclasses import replace

from tnt_notebook.parallel.graph.counts import is_one
from tnt_notebook.parallel.graph.layouts import EMPTY, PART, SAME, Layout, Listed, Rows, common
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.table import rule

#: The result for a sum is the sum of the results, in all operands together.
ADDED = ("AddV2", "Add", "Sub", "AddN", "Neg", "Identity", "StopGradient", "PreventGradient",
         "EnsureShape", "Snapshot", "Real", "Imag", "Conj")  # fmt: skip
#: In each operand by itself.
MULTIPLIED = ("Mul",)
#: In the first operand.
DIVIDED = ("RealDiv", "DivNoNan", "Xdivy")

OTHERS = (
    "Abs", "Acos", "Acosh", "Angle", "ApproximateEqual", "Asin", "Asinh", "Atan", "Atan2", "Atanh",
    "BesselI0e", "BesselI1e", "Betainc", "Bitcast", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Ceil",
    "CheckNumerics", "ClipByValue", "Complex", "ComplexAbs", "Cos", "Cosh", "Digamma", "Elu",
    "EluGrad", "Equal", "Erf", "Erfc", "Erfinv", "Exp", "Expm1", "FakeQuantWithMinMaxArgs",
    "FakeQuantWithMinMaxArgsGradient", "Floor", "FloorDiv", "FloorMod", "Greater", "GreaterEqual",
    "Igamma", "IgammaGradA", "Igammac", "Inv", "InvGrad", "Invert", "IsFinite", "IsInf", "IsNan",
    "LeakyRelu", "LeakyReluGrad", "LeftShift", "Less", "LessEqual", "Lgamma", "Log", "Log1p",
    "LogicalAnd", "LogicalNot", "LogicalOr", "Maximum", "Minimum", "Mod", "MulNoNan", "Ndtri",
    "NextAfter", "NotEqual", "Polygamma", "PopulationCount", "Pow", "Reciprocal",
    "ReciprocalGrad", "Relu", "Relu6", "Relu6Grad", "ReluGrad", "RightShift", "Rint", "Round",
    "Rsqrt", "RsqrtGrad", "Selu", "SeluGrad", "Sigmoid", "SigmoidGrad", "Sign", "Sin", "Sinh",
    "Softplus", "SoftplusGrad", "Softsign", "SoftsignGrad", "Sqrt", "SqrtGrad", "Square",
    "SquaredDifference", "StringLower", "StringUpper", "StringStrip", "StringToNumber", "AsString",
    "StringToHashBucketFast", "StringToHashBucketStrong", "StringToHashBucket", "StringLength",
    "RegexReplace", "StaticRegexReplace", "RegexFullMatch", "StaticRegexFullMatch", "Tan", "Tanh",
    "TanhGrad", "TruncateDiv", "TruncateMod", "Xlog1py", "Xlogy", "Zeta",
)  # fmt: skip

#: All that compute element by element.
ALL = frozenset(
    (*ADDED, *MULTIPLIED, *DIVIDED, *OTHERS, "Cast", "Select", "SelectV2", "ZerosLike", "OnesLike")
)


def aligned(node: Node, rank: int | None = None) -> Rows | None:
    """Where the result has rows, if operands are repeated against each other; None: nowhere, or
    their dimensions are not known. Of operands that have rows in other places the first counts, and
    none that is the same for each sample."""
    ranks = [node.rank(i) for i in range(len(node.inputs))]
    if len(ranks) == 1 and node.rows:
        return node.rows[0][1]
    if any(each is None for each in ranks):
        return None
    rank = max(each or 0 for each in ranks) if rank is None else rank
    found = [replace(has, dim=rank - (ranks[i] or 0) + has.dim) for i, has in node.rows]
    return min(found, key=lambda rows: (rows.repeated, rows.dim), default=None)


def operand(node: Node, index: int, result: Rows, rank: int) -> Layout:
    """What an operand has to be where the result has these rows."""
    of_rank, dims = node.rank(index) or 0, node.dims(index)
    dim = result.dim - (rank - of_rank)
    if dim < 0 or (dims is not None and is_one(dims[dim])):
        return SAME  # it is repeated along that dimension
    return result.at(dim)


def of_rows(node: Node) -> Decision | None:
    """The decision where some operand has rows."""
    result = aligned(node)
    if result is None:
        return None
    rank = max(node.rank(i) or 0 for i in range(len(node.inputs)))
    wants = [operand(node, i, result, rank) for i in range(len(node.inputs))]
    with_rows = [has for has, want in zip(node.has, wants, strict=True) if want != SAME]
    alike = all(isinstance(has, Rows) and has.repeated for has in with_rows)
    return Decision(wants, node.each(replace(result, repeated=alike)))


def _linear(node: Node, summed: bool) -> Decision | None:
    """``summed``: whether parts of all operands make a part of the result."""
    if node.rows:
        return of_rows(node)
    if not node.parts:
        return node.whole()
    if summed:
        return Decision([PART] * len(node.inputs), node.each(PART))
    return node.whole()


@rule(*ADDED)
def added(node: Node) -> Decision | None:
    if any(isinstance(has, Listed) for has in node.has):
        has: Layout = EMPTY
        for each in node.has:
            has = common(has, each)
        return Decision([has] * len(node.inputs), node.each(has))
    return _linear(node, True)


@rule(*MULTIPLIED)
def multiplied(node: Node) -> Decision | None:
    if not node.rows and len(node.parts) == 1:
        return Decision([PART if i in node.parts else SAME for i in range(2)], node.each(PART))
    return _linear(node, False)


@rule(*DIVIDED)
def divided(node: Node) -> Decision | None:
    stays = node.type == "DivNoNan" or node.facts.divides_parts
    if not node.rows and (node.parts == [0] or (stays and 0 in node.parts)):
        return Decision([PART, SAME], node.each(PART))
    return _linear(node, False)


@rule("Cast")
def cast(node: Node) -> Decision | None:
    kept = node.attr("SrcT").is_floating and node.attr("DstT").is_floating
    return _linear(node, kept or (node.attr("SrcT").is_integer and not node.attr("DstT").is_bool))


@rule("Select", "SelectV2")
def select(node: Node) -> Decision | None:
    if not node.rows and node.parts and 0 not in node.parts:
        return Decision([SAME, PART, PART], node.each(PART))
    if node.type == "Select" and node.rows and node.rank(0) != node.rank(1):
        # The condition has one entry for each first index of the others.
        rows = node.rows[0][1].at(0)
        return Decision([rows] * 3, node.each(rows)) if node.rows[0][1].dim == 0 else None
    return _linear(node, False)


@rule(*OTHERS)
def others(node: Node) -> Decision | None:
    return _linear(node, False)


@rule("BiasAdd", "BiasAddV1")
def bias(node: Node) -> Decision | None:
    channels_first = node.type == "BiasAdd" and node.attr("data_format") == "NCHW"
    rank = node.rank(0)
    if rank is None:
        return None
    channels = 1 if channels_first else rank - 1
    has = node.has[0]
    if isinstance(has, Rows) and has.dim != channels:
        return Decision([has, SAME], [has])
    return Decision([PART, PART], [PART]) if not node.rows and node.parts else None


@rule("BiasAddGrad")
def bias_gradient(node: Node) -> Decision | None:
    rank = node.rank(0)
    if rank is None:
        return None
    channels = 1 if node.attr("data_format") == "NCHW" else rank - 1
    has = node.has[0]
    kept = has == PART or (isinstance(has, Rows) and has.dim != channels)
    return Decision([has], [PART]) if kept else None
