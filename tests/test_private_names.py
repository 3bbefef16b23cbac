"""Private names of Keras and TensorFlow are known to ``tnt_notebook/keras`` alone."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "tnt_notebook"

#: Private modules, wherever they are named: in an import or in a text.
MODULES = re.compile(r"\b(keras\.src|tensorflow\.python)\b")

#: Of a namedtuple, and documented.
OF_TUPLES = {"_asdict", "_fields", "_make", "_replace"}


def test_private_names_of_keras_are_known_to_one_room_alone():
    found = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "keras"
        for line, name in private_names(path.read_text(encoding="utf-8"), _meets_keras(path))
    ]
    assert not found, "\n" + "\n".join(found)


def test_what_is_private_is_found():
    source = (
        "from keras.src import backend\n"
        "import tensorflow.python.eager as eager\n"
        "kind = lookup('keras.src.callbacks.history')\n"
        "class Own:\n"
        "    def _hidden(self, other):\n"
        "        return self._value, other._hidden, Pair._fields\n"
        "model._jit_compile = False\n"
        "super()._build(getattr(model, '_loss'))\n"
        "setattr(model, '_jit_compile', vars(model)['_value'])\n"
    )
    names = ["keras.src", "tensorflow.python", "keras.src"]
    attributes = ["model._jit_compile", "super()._build", "'_loss'", "'_jit_compile'"]
    assert [name for _, name in private_names(source, True)] == names + attributes
    assert [line for line, _ in private_names(source, True)] == [1, 2, 3, 7, 8, 8, 9]
    assert [name for _, name in private_names(source, False)] == names


def private_names(source: str, meets_keras: bool) -> list[tuple[int, str]]:
    """Line and name of what a file takes that is private to Keras or TensorFlow.

    An attribute is a file's own if the file defines it, or takes it of ``self``.

    Args:
        meets_keras: whether objects of Keras come to the file: then the underscored attributes
            that are not its own count too.
    """
    if not meets_keras and not MODULES.search(source):
        return []
    tree = ast.parse(source)
    found = list(_modules(tree))
    if meets_keras:
        own = OF_TUPLES | {name for node in ast.walk(tree) for name in _defined(node)}
        found += [(line, text) for line, name, text in _attributes(tree) if name not in own]
    return sorted(found, key=lambda at: at[0])


def _meets_keras(path: Path) -> bool:
    """Whether a file is in the room that trains, or imports Keras or TensorFlow itself."""
    if path.relative_to(PACKAGE).parts[0] == "parallel":
        return True
    return bool(re.search(r"^\s*(import|from) (keras|tensorflow)\b", path.read_text(), re.M))


def _modules(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                texts = [name.name for name in names]
            case ast.ImportFrom(module=str(module)):
                texts = [module]
            case ast.Constant(value=str(text)):
                texts = [text]
            case _:
                continue
        for text in texts:
            for match in MODULES.finditer(text):
                yield node.lineno, match[0]


def _attributes(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Line, name, and how it is written."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Name("self" | "cls"), _):
                pass
            case ast.Attribute(owner, name) if _is_private(name):
                yield node.lineno, name, f"{ast.unparse(owner)}.{name}"
            case ast.Call(
                ast.Name("getattr" | "setattr" | "hasattr" | "delattr"),
                [_, ast.Constant(value=str(name)), *_],
            ) if _is_private(name):
                yield node.lineno, name, repr(name)


def _defined(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.Attribute(ast.Name("self" | "cls"), name):
            yield name
        case ast.AnnAssign(target=ast.Name(name)):
            yield name


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")
