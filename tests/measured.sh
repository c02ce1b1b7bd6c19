#!/usr/bin/env bash
# Runs a test's command; appends what it took to the file $MESHPLAN_TEST_TIMES, if that is set: name, seconds, seconds
# of processor time in user and system mode. Usage: measured.sh NAME COMMAND...
name=$1
shift
[ -n "${MESHPLAN_TEST_TIMES:-}" ] || exec "$@"
TIMEFORMAT="$name"$'\t%R\t%U\t%S'
{ time "$@" 2>&3; } 3>&2 2>>"$MESHPLAN_TEST_TIMES"
