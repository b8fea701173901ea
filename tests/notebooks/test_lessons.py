"""The notebooks of the course: they keep the rules for learners, and are what their sources make."""

import nbformat
import pytest
from build import COURSE, check, lint_source

PRODUCTS = COURSE.products()


def by_path(product):
    """Folder and name of a notebook, as the test's id."""
    return f"{product.path.parent.name}/{product.path.stem}"


def test_notebooks_are_built_from_their_sources():
    """No notebook differs from its source, none is without source, and README's table is the one of the last build."""
    assert check(COURSE, PRODUCTS) == []


@pytest.mark.parametrize("product", PRODUCTS, ids=by_path)
def test_source_keeps_the_rules(product):
    """A source breaks no rule for learners."""
    assert lint_source(product) == []


@pytest.mark.parametrize("product", PRODUCTS, ids=by_path)
def test_notebook_keeps_the_rules(product):
    """A notebook breaks no rule, its stored outputs included."""
    assert product.lint(nbformat.read(product.path, as_version=4), product.path) == []
