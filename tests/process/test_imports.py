"""What imports what, seen in a new process."""

from __future__ import annotations

import subprocess
import sys


def test_importing_the_model_or_the_package_imports_nothing_slow() -> None:
    code = (
        "import sys, distrun.spec, distrun.spec.model, distrun.resources\n"
        "print(sorted({'yaml', 'psutil', 'tensorflow'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
