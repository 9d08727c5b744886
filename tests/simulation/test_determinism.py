"""The same commands at the same times give the same bytes, whatever Python's hashes are."""

import os
import subprocess
import sys
from pathlib import Path

from tests.simulation.test_queue_against_model import Driver

ROOT = Path(__file__).parents[2]
STEPS = 400


def output_of(seed: int) -> str:
    """Return a checksum of every byte that a broker sent for the commands of a seed."""
    driver = Driver(seed)
    for _ in range(STEPS):
        driver.step()
    return driver.output.hexdigest()


def output_elsewhere(seed: int, hash_seed: int) -> str:
    """Return the same checksum, computed in another process."""
    code = f"from {__name__} import output_of; print(output_of({seed}))"
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_two_brokers_answer_the_same_commands_with_the_same_bytes(seed: int) -> None:
    print(f"seed {seed}")
    assert output_of(seed) == output_of(seed)


def test_the_bytes_do_not_depend_on_the_order_of_hashes(seed: int) -> None:
    print(f"seed {seed}")
    assert output_elsewhere(seed, 1) == output_elsewhere(seed, 2)
