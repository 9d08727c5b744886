"""The part of the build that pyproject.toml cannot express: compiling the hot core to C.

mypyc compiles the modules in `[tool.leveret] compiled` into one unit, so that calls between them
stay C calls. Without a C compiler or Python's headers, or with LEVERET_PURE=1, the same sources are
installed as they are, and one line says so. A compiler that exists and fails is an error, never a
silent fall-back. An editable installation is always pure: no binary is put into src.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
# setup.py also runs for metadata queries; only these commands need the extensions.
BUILDING = frozenset({"bdist_wheel", "build", "build_ext", "install"})
# Hidden symbols let gcc call and inline across the unit's functions instead of through the PLT:
# about a tenth less CPU per message.
C_FLAGS = ["-fvisibility=hidden", "-Wno-unused-function"]
GENERATED_C = Path("build/mypyc")


class ParallelBuild(build_ext):
    """Compiles the C files of an extension in parallel, and only those that have changed."""

    def build_extension(self, ext: Extension) -> None:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(lambda source: self.compiled(ext, source), ext.sources))
        # Only linking is left, if an object is newer than the library.
        ext.sources, ext.depends, ext.extra_objects = [], objects, [*ext.extra_objects, *objects]
        super().build_extension(ext)

    def compiled(self, ext: Extension, source: str) -> str:
        """Return the object file of one source; compile it unless it is newer than its inputs."""
        built = Path(self.compiler.object_filenames([source], output_dir=self.build_temp)[0])
        made_from = [Path(source), ROOT / "setup.py", *GENERATED_C.rglob("*.h")]
        if not built.exists() or built.stat().st_mtime <= newest(made_from):
            self.compiler.compile(
                [source],
                output_dir=self.build_temp,
                macros=ext.define_macros,
                include_dirs=ext.include_dirs,
                extra_postargs=ext.extra_compile_args,
            )
        return str(built)


def newest(paths: list[Path]) -> float:
    return max(path.stat().st_mtime for path in paths)


def compiled_sources() -> list[str]:
    """Return the files of the compiled set, relative to the root, in a stable order."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["leveret"]
    found = {path for pattern in table["compiled"] for path in ROOT.glob(pattern)}
    found -= {ROOT / name for name in table["interpreted"]}
    return sorted(str(p.relative_to(ROOT)) for p in found if p.name != "__init__.py")


def missing_tool() -> str:
    """Return why C cannot be compiled here; empty if it can."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "")
    if not compiler:
        return "no C compiler"
    include = sysconfig.get_path("include")
    probe = [*compiler, "-fsyntax-only", "-x", "c", f"-I{include}", "-"]
    try:
        header = b"#include <Python.h>\n"
        done = subprocess.run(probe, input=header, capture_output=True, check=False)
    except OSError:
        return "no C compiler"
    return "" if done.returncode == 0 else "no C headers of Python"


def extensions() -> list[Extension]:
    """Return the compiled unit, or nothing for the pure form."""
    if not BUILDING & set(sys.argv[1:]):
        return []
    reason = "LEVERET_PURE is set" if os.environ.get("LEVERET_PURE") else missing_tool()
    if reason:
        print(f"leveret: {reason}: installing the pure Python form", file=sys.stderr)
        return []
    from mypyc.build import mypycify  # takes a quarter of a second that the pure form does not need

    unit: list[Extension] = mypycify(
        ["--cache-dir=build/mypy_cache", *compiled_sources()],
        opt_level="3",
        debug_level="0",
        multi_file=True,
        group_name="leveret",
        target_dir=str(GENERATED_C),
    )
    for extension in unit:
        extension.extra_compile_args.extend(C_FLAGS)
    return unit


(ROOT / "build").mkdir(exist_ok=True)
setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": ParallelBuild},
    options={"egg_info": {"egg_base": "build"}},  # generated files stay out of src
)
