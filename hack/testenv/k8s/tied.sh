#!/bin/bash
# tied.sh COMMAND…: runs a command that ends when standard input does, so that it does not outlive whoever started it.
exec {input}<&0
"$@" </dev/null {input}<&- &
command=$!
{
	read -r -u "$input" _
	kill -KILL "$command"
} 2>/dev/null &
wait "$command"
