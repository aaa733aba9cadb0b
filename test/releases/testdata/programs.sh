# Stand-ins for Kubernetes' programs, which say a version as the genuine ones do. The kubelet also runs until it is stopped.

# program NAME VERSION DIRECTORY
program() {
	mkdir -p "$3"
	{
		echo '#!/bin/sh'
		case $1 in
		kubeadm) echo "echo v$2" ;;
		kubelet) echo "[ \"\$1\" = --version ] && exec echo Kubernetes v$2" && echo 'exec sleep infinity' ;;
		kubectl) echo "echo Client Version: v$2" && echo 'echo Kustomize Version: v5.8.0' ;;
		*) echo "echo $1 version v$2" ;;
		esac
	} >"$3/$1"
	chmod 0755 "$3/$1"
}

# unit DIRECTORY VERSION
unit() {
	mkdir -p "$1"
	printf '[Unit]\nDescription=kubelet %s\n\n[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n\n[Install]\nWantedBy=multi-user.target\n' "$2" \
		>"$1/kubelet.service"
}

# hang WHEN is what a script of a package waits by as long as there is /run/hang-WHEN, and says by /run/hanging that it does.
hang() { echo "while [ -e /run/hang-$1 ]; do touch /run/hanging; sleep 0.1; done"; }

# key NAME makes a key to sign with, and /srv/repository/NAME.asc for those who verify.
key() {
	gpg --batch --quiet --passphrase '' --quick-generate-key "$1" rsa2048 sign never
	gpg --armor --export "$1" >"/srv/repository/$1.asc"
}

# served has what is below /srv/repository at http://127.0.0.1:8080, by a unit repository.service.
served() {
	systemd-run --quiet --collect --unit repository.service /opt/release serve 127.0.0.1:8080 /srv/repository
	for _ in $(seq 100); do
		(exec 3<>/dev/tcp/127.0.0.1/8080) 2>/dev/null && return
		sleep 0.1
	done
	echo "nobody serves /srv/repository" >&2
	return 1
}
