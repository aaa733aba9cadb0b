#!/bin/sh
# Stands for the programs that edit the files of accounts, under each of their names, in the node below $REFIT_ROOT.
# What it can't do is an error, as with the real ones.
set -eu
cd "$REFIT_ROOT/etc"
me=${0##*/}
echo "$me $*" >>../calls

# The file "dies" says at which call from now the program dies, and whether it has done its work by then.
when=
if [ -f ../dies ]; then
	read -r left when <../dies
	echo "$((left - 1)) $when" >../dies
	[ "$left" = 0 ] || when=
fi
[ "$when" != before ] || exit 1

fail() { echo "$me: $*" >&2; exit 9; }

get() { # file, name: the line
	while IFS= read -r l; do
		case $l in "$2:"*) printf '%s' "$l"; return ;; esac
	done <"$1"
}

put() { # file, name, the new line or nothing
	new= done=
	while IFS= read -r l; do
		case $l in "$2:"*) l=$3 done=y ;; esac
		[ -z "$l" ] || new="$new$l
"
	done <"$1"
	[ -n "$done" ] || [ -z "$3" ] || new="$new$3
"
	printf '%s' "$new" >"$1"
}

groups_of() { # user, list of groups, or - to leave all of them
	new=
	for g in $(echo "$2" | tr , ' '); do [ "$g" = - ] || [ -n "$(get group "$g")" ] || fail "group '$g' does not exist"; done
	while IFS=: read -r g secret number members; do
		list=
		for m in $(echo "$members" | tr , ' '); do [ "$m" = "$1" ] || list="$list,$m"; done
		case ",$2," in *",$g,"*) list="$list,$1" ;; esac
		new="$new$g:$secret:$number:${list#,}
"
	done <group
	printf '%s' "$new" >group
}

free() { # file: a number that is free
	n=1000
	while grep -q "^[^:]*:[^:]*:$n:" "$1"; do n=$((n + 1)); done
	echo $n
}

split() { IFS=: read -r name x uid gid gecos home shell <<E
$(get passwd "$1")
E
IFS=: read -r sname pw changed a b c d expire rest <<E
$(get shadow "$1")
E
}

join() {
	put passwd "$name" "$name:x:$uid:$gid:$gecos:$home:$shell"
	put shadow "$name" "$name:$pw:$changed:$a:$b:$c:$d:$expire:"
}

case $me in
groupadd)
	number=
	[ "$1" != -g ] || { number=$2 && shift 2; }
	[ -z "$(get group "$1")" ] || fail "group '$1' already exists"
	put group "$1" "$1:x:${number:-$(free group)}:" ;;
groupdel)
	[ -n "$(get group "$1")" ] || fail "group '$1' does not exist"
	put group "$1" "" ;;
useradd)
	home= group= uid= groups= gecos= shell=/bin/sh
	while getopts md:g:u:G:c:s: o; do
		case $o in m) ;; d) home=$OPTARG ;; g) group=$OPTARG ;; u) uid=$OPTARG ;; G) groups=$OPTARG ;; c) gecos=$OPTARG ;; s) shell=$OPTARG ;; *) exit 2 ;; esac
	done
	shift $((OPTIND - 1))
	name=$1
	[ -z "$(get passwd "$name")" ] || fail "user '$name' already exists"
	[ -n "$uid" ] || uid=$(free passwd)
	[ ! -f ../ids ] || uid=$(cat ../ids)
	if [ -z "$group" ]; then
		[ -z "$(get group "$name")" ] || fail "group $name exists"
		put group "$name" "$name:x:$(free group):"
		group=$name
	fi
	IFS=: read -r g x gid rest <<E
$(get group "$group")
E
	[ -n "$gid" ] || fail "group '$group' does not exist"
	home=${home:-/home/$name} pw='!' changed=1 a=0 b=99999 c=7 d= expire=
	join
	[ -z "$groups" ] || groups_of "$name" "$groups"
	if [ ! -e "$REFIT_ROOT$home" ]; then
		mkdir -p "$REFIT_ROOT$home"
		[ -f ../ids ] || chown "$uid:$gid" "$REFIT_ROOT$home"
	fi ;;
usermod)
	args=
	groups=-
	eval name=\${$#}
	[ -n "$(get passwd "$name")" ] || fail "user '$name' does not exist"
	split "$name"
	while getopts s:c:G:e:p:LU o; do
		case $o in
		s) shell=$OPTARG ;; c) gecos=$OPTARG ;; G) groups=$OPTARG ;; e) expire=$OPTARG ;; p) pw=$OPTARG ;;
		L) case $pw in "!"*) ;; *) pw="!$pw" ;; esac ;;
		U) case $pw in "!"?*) pw=${pw#!} ;; esac ;;
		*) exit 2 ;;
		esac
	done
	[ "$groups" = - ] || groups_of "$name" "$groups"
	join ;;
userdel)
	[ -n "$(get passwd "$1")" ] || fail "user '$1' does not exist"
	put passwd "$1" "" && put shadow "$1" ""
	groups_of "$1" ""
	case $(get group "$1") in *:) put group "$1" "" ;; esac ;;
chpasswd)
	[ "$*" = -e ] || fail "only -e"
	IFS=: read -r who hash
	split "$who"
	pw=$hash
	join ;;
visudo)
	[ "$*" = "-cf /dev/stdin" ] || fail "only -cf /dev/stdin"
	if grep -q BROKEN; then fail 'syntax error'; fi ;;
*)
	exit 127 ;;
esac
[ "$when" != after ] || exit 1
