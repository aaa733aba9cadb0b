// Package nodes starts machines for tests and demos: containers with Debian, systemd as pid 1 and sshd where there is
// Docker, and the stand-ins of package nodetest where there is none. What a caller got is said by Fleet.Kind, and printed.
package nodes
