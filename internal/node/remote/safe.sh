# Is in front of run.sh and push.sh. What is not shown to be right is refused: no exit hangs on a message that may not be written.
tmp=
fail() {
	status=$1
	shift
	[ -z "$tmp" ] || rm -f -- "$tmp"
	[ $# -eq 0 ] || echo "$@" >&2
	exit "$status"
}
# Goes to a directory, name by name from the root, so that nothing is looked up in a directory before that was checked, and no link is
# followed before it was, whether the argument names it or another link does. Each must be root's, or of whom this runs as, and writable by
# nobody else. In a directory with a sticky bit, as /tmp, nobody can exchange what is somebody else's: that will do on the way, and not
# at its end.
enter() {
	me=$(id -u) && [ -n "$me" ] && way=$(pwd -P) || fail 75 "the directory could not be checked"
	case $1 in /*) way=$1 ;; *) way=$way/$1 ;; esac
	cd / || fail 75 "the directory could not be checked"
	check . d
	hops=0
	while [ -n "$way" ]; do
		next=./${way%%/*}
		case $way in */*) way=${way#*/} ;; *) way= ;; esac
		[ "$next" != ./ ] || continue
		if [ -h "$next" ]; then
			check "$next" l
			hops=$((hops + 1))
			[ "$hops" -le 40 ] && to=$(readlink "$next") && [ -n "$to" ] || fail 75 "${next#./} is a link that could not be followed"
			case $to in /*) cd / || fail 75 ;; esac
			way=$to/$way
			continue
		fi
		[ -e "$next" ] || absent "$next"
		[ -d "$next" ] || fail 71 "${next#./} is not a directory"
		check "$next" d
		cd -P "$next" || fail 71
		check . d
	done
	check . e
}
# Returns if something is a link, a directory on the way, or the one at its end, in which nobody else can exchange anything.
check() {
	set -f
	set -- "$2" "$1" $(ls -ldn "$1")
	case $5 in
	0 | "$me") case $1:$3 in l:l* | [de]:d????-??-?* | d:d????????[tT]*) return 0 ;; esac ;;
	esac
	at=$(pwd -P)
	[ "$2" = . ] || at=${at%/}/${2#./}
	[ -n "$3" ] || fail 75 "$at could not be checked"
	fail 75 "$at is $3 and belongs to user $5"
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
		fail 76 "the node has none of sha256sum, shasum and openssl"
	fi || return
	echo "${digest%% *}"
}
