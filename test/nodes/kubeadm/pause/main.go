// Command pause holds a pod's namespaces open: it sleeps until it is told to end, and reaps what others leave behind.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// kubeadm checks the health of a cluster before an upgrade with a pod of this image and the argument -v.
	if len(os.Args) > 1 && os.Args[1] == "-v" {
		fmt.Println("pause of refit's test nodes")
		return
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		// Several children may have ended since the last signal.
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}
