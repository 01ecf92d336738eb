#!/bin/sh
# One firing of the schedule: start the RayJob unless one still runs, and stay until it has ended.
#
# `concurrencyPolicy: Forbid` sees the CronJob's own pod and nothing else, and to create a RayJob
# takes a second. Two things make it mean what it says:
# - this pod lives as long as the RayJob, so the next firing is held back, and its exit is the job's;
# - the RayJob's name is the lock: the API server refuses a second one, whoever creates it. A RayJob
#   started by hand, or one whose pod here was lost, is followed and not doubled.
# And should two runs meet after all, the output has a lock of its own (exit code 5).
#
# Exit codes: 0 the job succeeded, 1 it failed, 75 it could not be started (the CronJob tries
# again).
set -u

name=sbert
manifest=${MANIFEST:-/etc/schedule/rayjob.yaml}
pause=${POLL_SECONDS:-30}

state() {
    found=$(kubectl get rayjob "$name" --ignore-not-found \
        -o jsonpath='{.metadata.name}:{.status.jobDeploymentStatus}') || { echo unknown; return; }
    case "$found" in
        '') echo absent ;;
        *:Complete | *:Failed | *:ValidationFailed) echo ended ;;
        *) echo running ;;
    esac
}

now=$(state)
[ "$now" != unknown ] || exit 75
if [ "$now" = ended ]; then
    # Its result is in the output and its log with your logs; the name is needed again.
    kubectl delete rayjob "$name" --timeout=300s || exit 75
    now=absent
fi
if [ "$now" = absent ]; then
    # Refused because another was quicker: follow that one. Refused for another reason: try later.
    kubectl create -f "$manifest" || [ "$(state)" = running ] || exit 75
else
    echo "RayJob $name still runs: no second one is started"
fi

while :; do
    case "$(state)" in
        ended) break ;;
        absent)
            echo "RayJob $name was deleted before it ended"
            exit 1
            ;;
    esac
    sleep "$pause"
done

kubectl get rayjob "$name" -o \
    jsonpath='{.status.jobStatus} {.status.reason} after {.status.failed} failures: {.status.message}{"\n"}'
# "Complete" alone would also be true of a job that was stopped.
[ "$(kubectl get rayjob "$name" -o jsonpath='{.status.jobStatus}')" = SUCCEEDED ]
