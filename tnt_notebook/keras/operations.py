"""Operations of keras.ops, as functional models have them between layers. Their classes have no
public names; the same from Keras 3.10 to 3.15, where nothing else is said."""

from __future__ import annotations

from keras.src.ops import core, math, nn, numpy

_ELEMENTWISE = {
    numpy: (
        "Abs", "Absolute", "Add", "Arctan", "Arctan2", "Ceil", "Clip", "Cos", "Cosh", "Divide",
        "DivideNoNan", "Equal", "Exp", "Exp2", "Expm1", "Floor", "Greater", "GreaterEqual", "Less",
        "LessEqual", "Log", "Log10", "Log1p", "Log2", "Logaddexp", "LogicalAnd", "LogicalNot",
        "LogicalOr", "Maximum", "Minimum", "Mod", "Multiply", "Negative", "NotEqual", "Power",
        "Reciprocal", "Round", "Sign", "Sin", "Sinh", "Sqrt", "Square", "Subtract", "Tan", "Tanh",
        "TrueDivide", "Where",
    ),
    nn: (
        "Celu", "Elu", "Gelu", "HardShrink", "HardSigmoid", "HardSilu", "HardTanh", "LeakyRelu",
        "LogSigmoid", "Relu", "Relu6", "Selu", "Sigmoid", "Silu", "SoftShrink", "Softplus",
        "Softsign", "SparsePlus", "SparseSigmoid", "Squareplus", "TanhShrink", "Threshold",
    ),
    math: ("Erf", "Rsqrt"),
    core: ("Cast", "StopGradient"),
}  # fmt: skip

#: Those that compute each number by itself, or of those in the same place of several values.
#: Versions of Keras that lack some have no models with them.
ELEMENTWISE = tuple(
    getattr(module, name)
    for module, names in _ELEMENTWISE.items()
    for name in names
    if hasattr(module, name)
)
