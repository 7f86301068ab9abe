"""What all tests share. Whatever lives in tests/e2e goes through the command line: marked `e2e`."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE / "e2e"):
            item.add_marker(pytest.mark.e2e)
