# Runs the agent. Arguments: path, SHA-256, verb. What is executed was found to be what was brought, in a directory in
# which nobody else can exchange it meanwhile. The exit statuses are read by client.go.
absent() { exit 127; }
enter "${1%/*}"
name=./${1##*/}
[ -f "$name" ] || exit 127
[ -O "$name" ] || fail 73 "it belongs to another user"
case $(ls -ldn "$name") in -????-??-*) ;; *) fail 73 "others may write it" ;; esac
got=$(sha256 <"$name") || fail $?
[ "$got" = "$2" ] || fail 73 "its digest is $got"
exec "$name" "$3"
