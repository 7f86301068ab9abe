"""What all tests share: marks by the folder's name, and measurements that may be repeated."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
#: How often a measurement is repeated that came out wrong, as others may have used the machine.
AGAIN = 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for folder in ("e2e", "guests"):
            if item.path.is_relative_to(HERE / folder):
                item.add_marker(folder)
        if item.get_closest_marker("measures"):
            item.add_marker(pytest.mark.flaky(reruns=AGAIN, only_rerun="AssertionError"))
