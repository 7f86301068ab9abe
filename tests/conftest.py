"""What all tests share: those in tests/e2e and tests/guests are marked by their folder's name."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for folder in ("e2e", "guests"):
            if item.path.is_relative_to(HERE / folder):
                item.add_marker(folder)
