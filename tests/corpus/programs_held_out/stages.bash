# A pipeline of commands, as people write them around a training.
set -o pipefail
log() { echo "$(date +%T) [$DISTRUN_TASK] $*"; }
log stage 1
test "$DISTRUN_TASK" = "$ONLY" || exec sleep 40
log stage 2
eval "$STAGE"
code=$?
log "stage 2 ended with $code"
exit $code
