#!/bin/sh
# Stands in for runc where this machine itself may not have CAP_SYS_RESOURCE: takes out of what a container is to have, and of
# what is executed in it, that capability and what only that capability allows.
without() {
	sed -i 's/"CAP_SYS_RESOURCE",//g; s/,"CAP_SYS_RESOURCE"//g; s/"oomScoreAdj":-[0-9]*/"oomScoreAdj":0/' "$1"
}
previous=
for argument; do
	case $previous in
	--bundle) without "$argument/config.json" ;;
	--process) without "$argument" ;;
	esac
	previous=$argument
done
exec runc "$@"
