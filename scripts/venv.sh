#!/bin/sh
# Makes the virtual environment $1 for the Makefile, with distrun installed from this checkout.
# Does nothing if that was done before and neither pyproject.toml nor the checkout's place has
# changed. $PYTHON, if set, names the interpreter.
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

# Being found is not enough: a version manager has stand-ins for versions that are not there.
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

# Whether there is one, of the Python that was asked for.
there() {
    found=$("$venv/bin/python" -c "$version" 2>/dev/null) || return 1
    [ -z "${PYTHON:-}" ] || [ "$found" = "$("$PYTHON" -c "$version")" ]
}

[ -z "${PYTHON:-}" ] || find_python >/dev/null
wanted="$(cksum <pyproject.toml) $(pwd)"
if there && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi

# TensorFlow's wheels are 2 GB on disk: an environment that works is brought up to date, not
# made anew. One whose making was interrupted may have no pip.
if ! { there && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
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
