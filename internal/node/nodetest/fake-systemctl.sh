#!/bin/sh
# A FAKE systemctl for stand-in nodes. It does nothing but write down what it was asked, and answers as if all were well.
# A line of etc/fake-systemctl-fails makes calls with just these arguments fail, for example "restart kubelet.service".
root=${REFIT_ROOT:?the fake systemctl works in a stand-in node only}
echo "$*" >>"$root/var/log/fake-systemctl.log"
if [ -f "$root/etc/fake-systemctl-fails" ] && grep -Fxq -e "$*" "$root/etc/fake-systemctl-fails"; then
	echo "Job for $2 failed (this is the fake systemctl)." >&2
	exit 1
fi
property=
for word in "$@"; do
	case $word in
	--property=*) property=${word#--property=} ;;
	-p?*) property=${word#-p} ;;
	*) [ "${last:-}" != -p ] && [ "${last:-}" != --property ] || property=$word ;;
	esac
	last=$word
done
answer() {
	case $1 in
	LoadState) echo loaded ;;
	ActiveState) echo active ;;
	SubState) echo running ;;
	UnitFileState) echo enabled ;;
	NeedDaemonReload) echo no ;;
	CanReload) echo yes ;;
	Result) echo success ;;
	MainPID) echo 4711 ;;
	ExecMainStatus | NRestarts) echo 0 ;;
	Type) echo simple ;;
	# Another one after each start, as of the real one.
	InvocationID) printf '%032d\n' "$(grep -Ec '^((re)?start|try-restart|reload-or-restart) ' "$root/var/log/fake-systemctl.log")" ;;
	ActiveEnterTimestampMonotonic) wc -l <"$root/var/log/fake-systemctl.log" | tr -d ' ' ;;
	*) echo ;;
	esac
}
case " $* " in
*" show "*)
	case " $* " in
	*" --value "*) for p in $(echo "${property:-Id}" | tr , ' '); do answer "$p"; done ;;
	*) for p in $(echo "${property:-LoadState,ActiveState,SubState,UnitFileState,NeedDaemonReload,CanReload,Result}" | tr , ' '); do echo "$p=$(answer "$p")"; done ;;
	esac
	;;
*" is-active "*) echo active ;;
*" is-enabled "*) echo enabled ;;
*" is-system-running "*) echo running ;;
esac
exit 0
