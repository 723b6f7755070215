#!/bin/sh
# Uses distrun with the lowest versions of its dependencies that pyproject.toml promises, without
# TensorFlow, in a virtual environment in the folder $1. $PYTHON names the interpreter; the default
# is the oldest promised one that is here, for which old versions have wheels.
set -eu
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-$(sh scripts/pythons.sh 2>/dev/null | sed -n '1s/^[^ ]* //p')}
export PYTHON
WITHOUT=tensorflow sh scripts/venv.sh "$1"
sed -n '/^dependencies = \[\|^report = \[/,/^\]/p' pyproject.toml |
    sed -n 's/^ *"\([^>]*\)>=\([^,]*\),.*/\1==\2/p' >"$1/lowest.txt"
rm "$1/.distrun-installed" # it is no environment for anything else
"$1/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$1/lowest.txt"

"$1/bin/python" -m pytest -q -p no:cacheprovider --basetemp="$1/t" tests/unit/test_spec_messages.py \
    tests/unit/test_spec_load.py tests/unit/test_report.py
mkdir "$1/walk"
cd "$1/walk"
DISTRUN_HOME=$PWD/records
export DISTRUN_HOME
distrun() {
    ../bin/distrun "$@" >out 2>&1 || { code=$?; cat out; echo "distrun $* exited $code"; exit 1; }
}
printf '%s\n' 'name: lowest' 'strategy: multi_worker_mirrored' 'cluster: {worker: 2}' \
    'program: {command: [sh, -c, "echo $DISTRUN_TASK runs"]}' >job.yaml
distrun --help
distrun validate job.yaml
distrun plan job.yaml
distrun launch job.yaml
distrun run -n 2 sh -c 'echo runs'
distrun launch -d job.yaml
distrun wait
for command in ps status events logs report schema doctor; do
    case $command in
    ps) distrun ps -a --json ;;
    doctor) distrun doctor job.yaml ;;
    *) distrun "$command" ;;
    esac
done
echo "distrun works with $(paste -sd ' ' ../lowest.txt)"
