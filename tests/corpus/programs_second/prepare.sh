# A job of shell scripts: prepares, then works through a list.
set -eu
echo "$DISTRUN_TASK: preparing"
if test "${WHO:-}" = "$DISTRUN_TASK"; then
    sleep 0.3
    eval "$WHAT"
    exit 0
fi
sleep 30
