"""What all tests share: marks by the folder's name, a random order, and measurements that may be
repeated."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

HERE = Path(__file__).parent
#: How often a measurement is repeated that came out wrong, as others may have used the machine.
AGAIN = 2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle",
        metavar="SEED",
        help="run the modules, and the tests of each, in a random order; the seed repeats it",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for folder in ("e2e", "guests"):
            if item.path.is_relative_to(HERE / folder):
                item.add_marker(folder)
        if item.get_closest_marker("measures"):
            item.add_marker(pytest.mark.flaky(reruns=AGAIN, only_rerun="AssertionError"))
    if seed := config.getoption("shuffle"):
        shuffle(items, seed)


def shuffle(items: list[pytest.Item], seed: str) -> None:
    """Puts tests into a random order. A module stays in one piece, as it shares its servers."""
    order = random.Random(seed)
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    shuffled = list(modules.values())
    order.shuffle(shuffled)
    for module in shuffled:
        order.shuffle(module)
    items[:] = [item for module in shuffled for item in module]
