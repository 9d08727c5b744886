"""Take only some modules of the folder `leveret` into the wheel; pyproject.toml lists them."""

import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PROJECT = tomllib.loads(Path(__file__).with_name("pyproject.toml").read_text())


class BuildPy(build_py):
    """Leaves out the modules of `leveret` that this package does not need."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        found = super().find_package_modules(package, package_dir)
        wanted = PROJECT["tool"]["leveret"]["modules"]
        return [each for each in found if package != "leveret" or each[1] in wanted]


setup(cmdclass={"build_py": BuildPy})
