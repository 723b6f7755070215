#!/bin/sh
# Prints a line `3.10 /path/to/python3.10` for each Python that distrun promises and that is here:
# on PATH, of pyenv or of uv. Each is run, and can make virtual environments. Those that are not
# found are named on stderr. Arguments, for example `3.8 3.9`, are the versions to look for instead.
# With --promised, prints the promised versions only: the classifiers of pyproject.toml.
set -eu

promised() {
    sed -n 's/.*"Programming Language :: Python :: \(3\.[0-9]*\)".*/\1/p' \
        "$(dirname -- "$0")/../pyproject.toml"
}
if [ "${1-}" = --promised ]; then
    promised
    exit
fi
[ $# -gt 0 ] || set -- $(promised)

pyenv=${PYENV_ROOT:-${HOME:-/nonexistent}/.pyenv}/versions
uv=${UV_PYTHON_INSTALL_DIR:-${XDG_DATA_HOME:-${HOME:-/nonexistent}/.local/share}/uv/python}
# Version managers put stand-ins on PATH that fail or run another version. In a virtual
# environment, the interpreter is the one that it was made from.
shown='
import ensurepip, sys, venv
if "%d.%d" % sys.version_info[:2] != sys.argv[1]:
    sys.exit(1)
print(getattr(sys, "_base_executable", sys.executable))'

candidates() (
    IFS=:
    set -f
    for folder in $PATH; do
        printf '%s\n' "${folder:-.}/python$1" "${folder:-.}/python3"
    done
    set +f
    for candidate in "$pyenv/$1".*/bin/python3 "$uv"/cpython-"$1".*/bin/python3; do
        printf '%s\n' "$candidate"
    done
)

find_python() {
    candidates "$1" | while IFS= read -r candidate; do
        [ -x "$candidate" ] || continue
        "$candidate" -c "$shown" "$1" 2>/dev/null </dev/null || continue
        break
    done
}

for version; do
    path=$(find_python "$version")
    if [ -n "$path" ]; then
        printf '%s %s\n' "$version" "$path"
    else
        printf 'Python %s: not found on PATH, of pyenv or of uv\n' "$version" >&2
    fi
done
