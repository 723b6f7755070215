#!/bin/sh
# Creates the virtual environment $1 for the Makefile, with distrun installed from this checkout.
# Does nothing if it exists, and pyproject.toml and the checkout's path are unchanged.
# $PYTHON, if set, names the interpreter. $WITHOUT, if set, names what is left out: `tensorflow`
# (tests that do not need it then take 0.2 GB), or `tensorflow dev` (dev is what only tests need).
# $UV, if set, names a uv to install with, in less than half of pip's time. It does not read pip's
# configuration; where it fails, pip installs.
set -eu

venv=$1
stamp=$venv/.distrun-installed
promised=$(sh scripts/pythons.sh --promised)
range="$(printf '%s\n' "$promised" | sed -n 1p) to $(printf '%s\n' "$promised" | sed -n '$p')"
version='import sys; print("%d.%d.%d" % sys.version_info[:3])'

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

# Whether this is a Python that distrun promises. Runs it: version managers install stand-ins for
# versions that are missing.
fits() {
    found=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || return 1
    printf '%s\n' "$promised" | grep -qxF "$found"
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        fits "$PYTHON" || fail "PYTHON=$PYTHON: no Python from $range."
        printf '%s' "$PYTHON"
        return
    fi
    if fits python3; then
        printf python3
        return
    fi
    newest=$(sh scripts/pythons.sh 2>/dev/null | sed -n '$s/^[^ ]* //p')
    if [ -n "$newest" ]; then
        printf '%s' "$newest"
        return
    fi
    fail "No Python from $range found (python3: $(python3 -V 2>&1 || true))." \
        "Install one, or name it: make ... PYTHON=/path/to/python3"
}

# Whether the virtual environment works and has the requested Python.
venv_works() {
    found=$("$venv/bin/python" -c "$version" 2>/dev/null) || return 1
    [ -z "${PYTHON:-}" ] || [ "$found" = "$("$PYTHON" -c "$version")" ]
}

[ -z "${PYTHON:-}" ] || find_python >/dev/null
wanted="$(cksum <pyproject.toml) $(pwd)${WITHOUT:+ without $WITHOUT}"
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
install() {
    if [ -n "${UV:-}" ]; then
        "$UV" pip install --quiet --compile-bytecode --python "$venv/bin/python" "$@" && return
    fi
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}
case ${WITHOUT:-} in
'')
    echo "Installing distrun and TensorFlow into $venv (2 GB; a minute or two the first time)" >&2
    install --editable '.[all,dev]'
    ;;
tensorflow)
    echo "Installing distrun without $WITHOUT into $venv" >&2
    install --editable '.[report,dev]'
    ;;
*)
    echo "Installing distrun without $WITHOUT into $venv" >&2
    install --editable '.[report]'
    ;;
esac
printf '%s\n' "$wanted" >"$stamp"
