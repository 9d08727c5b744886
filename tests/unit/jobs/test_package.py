"""A node imports the jobs service, and none of its clients."""

import subprocess
import sys


def test_the_service_brings_no_client() -> None:
    code = "import sys, leveret.job_service.store; print('leveret.jobs' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
