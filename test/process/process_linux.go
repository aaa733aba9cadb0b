package process

import (
	"os/exec"
	"syscall"
)

// childAttributes put a child into a group of its own, out of reach of the terminal's interrupts, and have the kernel end it
// should this process be killed without a chance to.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Leashed returns a stand-in for program, for those who start it themselves: it asks the kernel for the same signal at its
// parent's death, then becomes program with further environment. Where setpriv is missing or too plain, it only does the latter.
func Leashed(program, standIn string, env ...string) (string, error) {
	setpriv, err := exec.LookPath("setpriv")
	if err != nil || exec.Command(setpriv, "--pdeathsig", "KILL", "true").Run() != nil {
		return withEnv(standIn, env, program) // a safety net, not a requirement
	}
	return withEnv(standIn, env, setpriv, "--pdeathsig", "KILL", program)
}
