# Is in front of run.sh and push.sh. Prints why the working directory is one that somebody else than root, or than whom this runs
# as, could put another program into: each directory from the root down must be theirs, and writable by nobody else. In one with a
# sticky bit, as /tmp, nobody can exchange what is somebody else's.
unsafe() {
	me=$(id -u) && at=$(pwd -P) || { echo "the directory could not be checked" && return; }
	case $at in /*) ;; *) echo "it has no path" && return ;; esac
	rest=$at up=. all=. n=1
	while [ -n "$rest" ]; do
		rest=${rest%/*} up=$up/.. n=$((n + 1))
		all="$all $up"
	done
	ls -ldn $all | {
		seen=0
		while read -r mode _ uid rest; do
			seen=$((seen + 1)) ok=yes
			case $uid in 0 | "$me") ;; *) ok= ;; esac
			case $mode in d????????[tT]*) ;; ?????w* | ????????w*) ok= ;; esac
			[ -z "$ok" ] || continue
			up=${rest##* }
			while [ "$up" != . ]; do up=${up%/..} at=${at%/*}; done
			echo "${at:-/} is $mode and belongs to user $uid"
			break
		done
		[ "$seen" -eq "$n" ] || [ -z "$ok" ] || echo "$at could not be checked"
	}
}
# Prints the SHA-256 of the stdin, by a program of the node's.
sha256() {
	if command -v sha256sum >/dev/null 2>&1; then
		digest=$(sha256sum)
	elif command -v shasum >/dev/null 2>&1; then
		digest=$(shasum -a 256)
	elif command -v openssl >/dev/null 2>&1; then
		digest=$(openssl dgst -sha256 -r)
	else
		echo "the node has none of sha256sum, shasum and openssl" >&2 && exit 76
	fi || return
	echo "${digest%% *}"
}
