package server

import (
	"errors"
	"fmt"
	"net/http"

	"k8s.io/utils/clock"

	"github.com/capi-refit/refit/internal/bootimage"
	"github.com/capi-refit/refit/internal/bootimage/rotation"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/shard"
)

// addImages has the manager keep the BootImagePolicies, record which image each machine has booted from, and show what is too old.
func addImages(mgr shard.Manager) (*bootimage.Policies, error) {
	policies := bootimage.NewPolicies(mgr.GetClient())
	recorder := &bootimage.Recorder{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Policies: policies}
	status := &bootimage.Status{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Policies: policies, Recorder: mgr.GetEventRecorder("refit"), Clock: clock.RealClock{},
	}
	if err := errors.Join(
		policies.SetupWithManager(mgr), recorder.SetupWithManager(mgr), status.SetupWithManager(mgr),
		mgr.AddReadyzCheck("boot-images", func(*http.Request) error { return policies.Ready() }),
	); err != nil {
		return nil, fmt.Errorf("add what says which images may move on: %w", err)
	}
	whenLeading(mgr, &bootimage.Collector{Client: mgr.GetClient()})
	return policies, nil
}

// addRotation has the manager keep machine templates at golden images. What it does is judged by the updaters that answer the hooks.
func addRotation(mgr shard.Manager, updaters inplace.Updaters) error {
	controller := &rotation.Controller{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Updaters: updaters, Recorder: mgr.GetEventRecorder("refit"), Clock: clock.RealClock{},
	}
	if err := controller.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("add what keeps templates at golden images: %w", err)
	}
	return nil
}
