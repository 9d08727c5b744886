"""The part of the build that pyproject.toml cannot express: compiling the hot core to C.

mypyc compiles the modules in `[tool.leveret] compiled` into one unit, so that calls between them
stay C calls. Without a C compiler or Python's headers, or with LEVERET_PURE=1, the same sources are
installed as they are, and one line says so. A compiler that exists and fails is an error, never a
silent fall-back. An editable installation is always pure: no binary is put into src.

The C compiler takes nine tenths of the time. A module that a message passes is compiled on its own
with -O3. The modules in `[tool.leveret] cold` are compiled folder by folder with -O1, which takes a
third of the CPU time for each line: gcc reads the large header of the unit once for a folder.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
# setup.py also runs for metadata queries; only these commands need the extensions.
BUILDING = frozenset({"bdist_wheel", "build", "build_ext", "install"})
# Hidden symbols let gcc call and inline across the unit's functions instead of through the PLT:
# about a tenth less CPU per message.
C_FLAGS = ["-fvisibility=hidden", "-Wno-unused-function"]
COLD_C_FLAGS = ["-O1"]  # follows -O3 on the command line and replaces it
GENERATED_C = Path("build/mypyc")
UNIT = "leveret"
# mypyc adds a small library for each module, which calls the unit. Python's own header is most of
# its compilation, so it gets this one. All names in it belong to Python's stable ABI.
SMALL_HEADER = GENERATED_C / "small_header" / "Python.h"
SMALL_HEADER_TEXT = """\
#include <stddef.h>
typedef struct _object PyObject;
#define PyMODINIT_FUNC __attribute__((visibility("default"))) PyObject *
#define Py_DECREF Py_DecRef
void Py_DecRef(PyObject *);
void PyErr_Clear(void);
PyObject *Py_BuildValue(const char *, ...);
PyObject *PyImport_ImportModuleLevel(const char *, PyObject *, PyObject *, PyObject *, int);
PyObject *PyObject_GetAttrString(PyObject *, const char *);
void *PyCapsule_GetPointer(PyObject *, const char *);
"""


class Batch(NamedTuple):
    """One run of the C compiler."""

    source: Path
    made_from: list[Path]
    flags: list[str]

    def size(self) -> int:
        return sum(path.stat().st_size for path in self.made_from)


class ParallelBuild(build_ext):
    """Compiles C files in parallel, and only those that have changed."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.parallel = os.cpu_count()

    def build_extension(self, ext: Extension) -> None:
        batches = batches_of([Path(source) for source in ext.sources])
        # The longest runs begin first, so that no core waits for one of them at the end.
        batches.sort(key=Batch.size, reverse=True)
        objects: list[str] = []
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for built in pool.map(lambda batch: self.compiled(ext, batch), batches):
                objects.append(built)
                note_progress(len(objects), len(batches))
        # Only linking is left, if an object is newer than the library.
        ext.sources, ext.depends, ext.extra_objects = [], objects, [*ext.extra_objects, *objects]
        super().build_extension(ext)

    def compiled(self, ext: Extension, batch: Batch) -> str:
        """Return the object file of a batch; compile it unless it is newer than its inputs."""
        source = str(batch.source)
        built = Path(self.compiler.object_filenames([source], output_dir=self.build_temp)[0])
        made_from = [*batch.made_from, ROOT / "setup.py", *GENERATED_C.rglob("*.h")]
        if not built.exists() or built.stat().st_mtime <= newest(made_from):
            self.compiler.compile(
                [source],
                output_dir=self.build_temp,
                macros=ext.define_macros,
                include_dirs=ext.include_dirs,
                extra_postargs=[*ext.extra_compile_args, *batch.flags],
            )
        return str(built)


def note_progress(done: int, total: int) -> None:
    """Tell `tools/setup_venv.py` how many runs of the C compiler are done."""
    noted = os.environ.get("LEVERET_BUILD_PROGRESS")
    if noted and total > 1:
        half = Path(f"{noted}.half")
        half.write_text(f"{done} {total}")
        half.replace(noted)


def newest(paths: list[Path]) -> float:
    return max(path.stat().st_mtime for path in paths)


def batches_of(sources: list[Path]) -> list[Batch]:
    """Return the runs of the compiler for these C files."""
    cold = {c_file(module) for module in listed("cold")}
    batches = [Batch(source, [source], []) for source in sources if source.name not in cold]
    folders: dict[str, list[Path]] = {}
    for source in sources:
        if source.name in cold:
            folders.setdefault(source.name.rpartition("___")[0], []).append(source)
    for folder, files in folders.items():
        together = GENERATED_C / f"cold_{folder.strip('_')}.c"
        write_if_changed(together, "".join(f'#include "{file.name}"\n' for file in files))
        batches.append(Batch(together, [together, *files], COLD_C_FLAGS))
    return batches


def c_file(module: str) -> str:
    """Return the name that mypyc gives to the C file of a module."""
    parts = Path(module).relative_to("src").with_suffix("").parts
    return f"__native_{'___'.join(parts)}.c"


def write_if_changed(path: Path, text: str) -> None:
    """Write a file unless it holds this text: its time decides what is compiled again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def compiled_sources() -> list[str]:
    """Return the files of the compiled set, relative to the root, in a stable order."""
    return sorted(listed("compiled") - listed("interpreted"))


def listed(key: str) -> set[str]:
    """Return the modules that the globs of one list in `[tool.leveret]` name."""
    patterns: Iterable[str] = TABLE[key]
    found = {path for pattern in patterns for path in ROOT.glob(pattern)}
    return {str(p.relative_to(ROOT)) for p in found if p.name != "__init__.py"}


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
        group_name=UNIT,
        target_dir=str(GENERATED_C),
    )
    write_if_changed(SMALL_HEADER, SMALL_HEADER_TEXT)
    for extension in unit:
        extension.extra_compile_args = [*extension.extra_compile_args, *C_FLAGS]
        if extension.name != f"{UNIT}__mypyc":
            extension.include_dirs.insert(0, str(SMALL_HEADER.parent))
    return unit


TABLE = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["leveret"]
(ROOT / "build").mkdir(exist_ok=True)
setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": ParallelBuild},
    options={"egg_info": {"egg_base": "build"}},  # generated files stay out of src
)
