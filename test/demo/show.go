package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/types"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/test/system"
)

type demo struct {
	*system.System
	out io.Writer

	before map[string]types.UID
	began  time.Time
	// first and last are when a machine's update was seen to begin and to have succeeded.
	first, last map[string]time.Time
	shown       map[string]string
}

// show makes the change, shows how it comes to the nodes, and proves that it did.
func (d *demo) show(ctx context.Context) error {
	var err error
	if d.before, err = d.Identities(ctx); err != nil {
		return err
	}
	heading(d.out, "Changing two files in the KubeadmControlPlane and in the MachineDeployment's template")
	say(d.out, "   %s gets other content and mode %s, and needs no action;\n   %s is added, and %s is reloaded",
		appFile.Path, appFile.Permissions, sshdFile.Path, reloadedUnit)
	d.began = time.Now()
	d.first, d.last, d.shown = map[string]time.Time{}, map[string]time.Time{}, map[string]string{}
	if err := d.PutFiles(ctx, appFile, sshdFile); err != nil {
		return err
	}
	heading(d.out, "The updates, as `kubectl get machineupdates` shows them")
	watching, stop := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() { defer close(done); d.watch(watching, stop) }()
	err = d.Cluster.WaitForRollout(watching)
	failed := context.Cause(watching)
	stop(nil)
	<-done
	if err != nil {
		return errors.Join(failed, err)
	}
	if err := d.look(ctx); err != nil {
		return err
	}
	return d.prove(ctx)
}

// watch prints each update whenever it is in another phase or at another step. It stops the demo when one has failed.
func (d *demo) watch(ctx context.Context, stop context.CancelCauseFunc) {
	for ctx.Err() == nil {
		if err := d.look(ctx); err != nil {
			stop(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// look prints what is new. It returns an error when an update has failed.
func (d *demo) look(ctx context.Context) error {
	updates, err := d.Updates(ctx)
	if err != nil {
		return nil //nolint:nilerr // the next look shows what this one has missed
	}
	for _, mu := range updates {
		d.note(&mu)
		if mu.Status.Phase == refitv1.PhaseFailed {
			return fmt.Errorf("the update of %s has failed: %s", mu.Name, mu.Status.Message)
		}
	}
	return nil
}

func (d *demo) note(mu *refitv1.MachineUpdate) {
	now := time.Now()
	if _, ok := d.first[mu.Name]; !ok {
		d.first[mu.Name] = now
	}
	if _, ok := d.last[mu.Name]; !ok && system.Succeeded(mu) {
		d.last[mu.Name] = now
	}
	state := fmt.Sprintf("%-9s %s", mu.Status.Phase, mu.Status.Message)
	if mu.Status.Phase == "" || d.shown[mu.Name] == state {
		return
	}
	d.shown[mu.Name] = state
	say(d.out, "   %6.1fs  %-22s %s", now.Sub(d.began).Seconds(), mu.Name, state)
}

// prove reads everything back, from the management cluster and from the nodes. It fails unless all of it holds.
func (d *demo) prove(ctx context.Context) error {
	heading(d.out, "The proof, read back from the management cluster and from each node")
	after, err := d.Identities(ctx)
	if err != nil {
		return err
	}
	var failures []error
	t := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	say(t, "   MACHINE\tSAME NAME AND UID\tFILES (BYTES, MODE, OWNER)\t%s\tUPDATED IN", reloadedUnit)
	for _, name := range slices.Sorted(maps.Keys(d.before)) {
		same, files, reloaded := "yes", "as specified", "reloaded"
		if after[name] != d.before[name] {
			same = "NO"
			failures = append(failures, fmt.Errorf("the Machine %s was re-created", name))
		}
		if err := errors.Join(d.CheckFile(ctx, name, appFile), d.CheckFile(ctx, name, sshdFile)); err != nil {
			files = "WRONG"
			failures = append(failures, err)
		}
		if ok, err := d.Fleet.Node(name).Reloaded(ctx, reloadedUnit); err != nil || !ok {
			reloaded = "NOT RELOADED"
			failures = append(failures, errors.Join(fmt.Errorf("on %s, %s was not reloaded", name, reloadedUnit), err))
		}
		took, ok := d.last[name]
		if !ok {
			failures = append(failures, fmt.Errorf("no MachineUpdate of %s has succeeded", name))
		}
		say(t, "   %s\t%s\t%s\t%s\t%.1fs", name, same, files, reloaded, took.Sub(d.first[name]).Seconds())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(after) != len(d.before) {
		failures = append(failures, fmt.Errorf("there were %d Machines and are %d", len(d.before), len(after)))
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("the proof does not hold: %w", err)
	}
	say(d.out, "\n   All %d machines are the same ones, %s, and were updated in place within %.0f s.",
		len(after), d.Fleet.Kind(), time.Since(d.began).Seconds())
	return nil
}

// lookAround says how to look at what runs.
func (d *demo) lookAround() {
	heading(d.out, "Everything is left running; end it with Ctrl-C. In another terminal:")
	say(d.out, `
   export KUBECONFIG=%s PATH=%s:$PATH
   kubectl get machineupdates -A
   kubectl get machines -A
   kubectl describe machineupdate -n %s`, d.Lab.Kubeconfig, d.Lab.BinDir(), d.Cluster.Namespace)
	say(d.out, "   tail -f %s/refit-*.log", d.Lab.LogDir)
	for _, n := range d.Fleet.Nodes() {
		say(d.out, "   %s   # node %s", n.Shell(), n.Name())
		break
	}
}
