// Uifleet serves refit's page of a made-up fleet, at an instant that does not pass, and prints its URL: to look at the page without a cluster, and for
// the tests of it in a browser.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/ui"
	"github.com/capi-refit/refit/internal/ui/uitest"
)

func main() {
	address := flag.String("address", "127.0.0.1:0", "Where to serve the page.")
	clusters := flag.Int("clusters", 0, "How many clusters there are, all alike. 0: a small fleet, in which there is a machine in each state.")
	machines := flag.Int("machines", 30, "How many machines each of them has.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *address, *clusters, *machines)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "uifleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, address string, clusters, machines int) error {
	objects := uitest.Fleet()
	if clusters > 0 {
		objects = uitest.Large(clusters, machines)
	}
	c := uitest.New(objects...)
	fleet, err := ui.NewFleet(ui.Options{Client: c, Clock: clocktesting.NewFakePassiveClock(uitest.Now)})
	if err != nil {
		return err
	}
	l, err := ui.Listen(ctx, address)
	if err != nil {
		return err
	}
	door := ui.NewDoor(l.Addr())
	fmt.Println(door.URL())
	go fail(ctx, c, bufio.NewScanner(os.Stdin))
	return ui.Serve(ctx, l, fleet, door)
}

// fail reads lines with a namespace, the name of a Machine and a message, and has the update of each fail with it: to see that the page shows what
// changes.
func fail(ctx context.Context, c client.Client, lines *bufio.Scanner) {
	for lines.Scan() {
		words := strings.SplitN(lines.Text(), " ", 3)
		if len(words) != 3 {
			continue
		}
		mu := &refitv1.MachineUpdate{}
		err := c.Get(ctx, client.ObjectKey{Namespace: words[0], Name: words[1]}, mu)
		if err == nil {
			mu.Status.Phase, mu.Status.Reason, mu.Status.Message = refitv1.PhaseFailed, "Unhealthy", words[2]
			err = c.Status().Update(ctx, mu)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "uifleet:", err)
		}
	}
}
