"""The example scripts: short, and complete in one file."""

import ast
import sys

import pytest

from distrun.spec.resources import examples, templates


@pytest.mark.parametrize("name", examples())
def test_an_example_is_short_and_complete(name: str) -> None:
    text = examples()[name].read_text()
    assert len(text.splitlines()) < 145
    assert max(map(len, text.splitlines())) <= 100
    imported = [
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    assert set(imported) - set(sys.stdlib_module_names) == {"numpy", "tensorflow"}
    keras = text.index('os.environ["TF_USE_LEGACY_KERAS"] = "1"  # ')
    assert keras < text.index("import tensorflow")


def test_every_example_has_a_template() -> None:
    assert set(examples()) <= set(templates())
    for name in examples():
        assert f"script: {name}.py\n" in templates()[name].read_text()
