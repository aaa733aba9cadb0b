//go:build !linux

package process

import "syscall"

// childAttributes put a child into a group of its own, out of reach of the terminal's interrupts.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Leashed returns a stand-in for program that has further environment: only Linux tells children that their parent has died.
func Leashed(program, standIn string, env ...string) (string, error) {
	return withEnv(standIn, env, program)
}
