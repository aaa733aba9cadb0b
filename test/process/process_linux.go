package process

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// childAttributes put a child into a group of its own, out of reach of the terminal's interrupts, and have the kernel end it
// should this process be killed without a chance to.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Leashed returns a stand-in for program, for those who start it themselves: it asks the kernel for the same signal at its
// parent's death, then becomes program. Where setpriv is missing or too plain, that is program itself.
func Leashed(program, standIn string) (string, error) {
	setpriv, err := exec.LookPath("setpriv")
	if err != nil || exec.Command(setpriv, "--pdeathsig", "KILL", "true").Run() != nil {
		return program, nil //nolint:nilerr // a safety net, not a requirement
	}
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' --pdeathsig KILL '%s' \"$@\"\n", setpriv, program)
	if err := os.WriteFile(standIn, []byte(script), 0o700); err != nil {
		return "", fmt.Errorf("writing the stand-in for %s: %w", program, err)
	}
	return standIn, nil
}
