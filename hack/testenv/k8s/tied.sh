#!/bin/bash
# tied.sh COMMAND…: runs a command that is killed when standard input ends, so that it does not outlive whoever started it.
exec {input}<&0
"$@" </dev/null {input}<&- &
command=$!
trap 'kill -KILL "$command" 2>/dev/null' EXIT
trap exit TERM INT HUP
{
	read -r -u "$input" _
	kill -KILL "$command"
} 2>/dev/null &
wait "$command"
