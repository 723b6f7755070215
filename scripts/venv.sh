#!/bin/sh
# Creates the virtual environment $1 for the Makefile, with distrun installed from this checkout.
# Does nothing if it exists, and pyproject.toml and the checkout's path are unchanged.
# $PYTHON, if set, names the interpreter.
set -eu

venv=$1
stamp=$venv/.distrun-installed
least=3.10 # keep in step with requires-python
fit='import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))'
version='import sys; print("%d.%d.%d" % sys.version_info[:3])'

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

# Runs each candidate: version managers install stand-ins for versions that are missing.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        "$PYTHON" -c "$fit" 2>/dev/null ||
            fail "PYTHON=$PYTHON: no Python from $least to 3.13."
        printf '%s' "$PYTHON"
        return
    fi
    for name in python3 python3.13 python3.12 python3.11 python3.10; do
        if "$name" -c "$fit" 2>/dev/null; then
            printf '%s' "$name"
            return
        fi
    done
    fail "No Python from $least to 3.13 found (python3: $(python3 -V 2>&1 || true))." \
        "Install one, or name it: make ... PYTHON=/path/to/python3"
}

# Whether the virtual environment works and has the requested Python.
venv_works() {
    found=$("$venv/bin/python" -c "$version" 2>/dev/null) || return 1
    [ -z "${PYTHON:-}" ] || [ "$found" = "$("$PYTHON" -c "$version")" ]
}

[ -z "${PYTHON:-}" ] || find_python >/dev/null
wanted="$(cksum <pyproject.toml) $(pwd)"
if venv_works && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi

# TensorFlow takes 2 GB of disk, so a working environment is updated and not recreated. If its
# creation was interrupted, it may lack pip.
if ! { venv_works && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python cannot make virtual environments." \
            "On Debian and Ubuntu: apt-get install python3-venv"
    "$python" -m venv --clear "$venv"
fi
rm -f "$stamp"
echo "Installing distrun and TensorFlow into $venv (2 GB; a minute or two the first time)" >&2
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
printf '%s\n' "$wanted" >"$stamp"
