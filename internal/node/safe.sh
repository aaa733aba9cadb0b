# Is in front of run.sh and push.sh.
# Prints why the working directory is one that somebody else than root, or than whom this runs as, could put another program into. The
# argument is how one has come there, which leads through directories, and links, of which the same must be true: each must be theirs, and
# writable by nobody else. In a directory with a sticky bit, as /tmp, nobody can exchange what is somebody else's.
unsafe() {
	me=$(id -u) && at=$(pwd -P) || { echo "the directory could not be checked" && return; }
	case $at in /*) ;; *) echo "it has no path" && return ;; esac
	case $1 in /*) way=$1 ;; *) way=$OLDPWD/$1 ;; esac
	set -- .
	up=. rest=$at
	while [ -n "$rest" ]; do
		rest=${rest%/*} up=$up/..
		set -- "$@" "$up"
	done
	while [ -n "$way" ]; do
		set -- "$@" "$way"
		way=${way%/*}
	done
	ls -ldn -- "$@" | {
		seen=0
		while read -r mode _ uid rest; do
			seen=$((seen + 1)) ok=yes
			case $uid in 0 | "$me") ;; *) ok= ;; esac
			case $mode in l* | d????????[tT]*) ;; ?????w* | ????????w*) ok= ;; esac
			[ -z "$ok" ] || continue
			case $rest in
			*" ." | *" ./.."*)
				up=${rest##* }
				while [ "$up" != . ]; do up=${up%/..} at=${at%/*}; done
				;;
			*) at=/${rest#*/} ;;
			esac
			echo "${at:-/} is $mode and belongs to user $uid"
			break
		done
		[ "$seen" -eq $# ] || [ -z "$ok" ] || echo "$at could not be checked"
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
