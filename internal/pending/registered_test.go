package pending

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/registered"
	"github.com/capi-refit/refit/internal/rollback"
	"github.com/capi-refit/refit/updaters"
)

// asker has questions answered by one registered extension.
type asker struct {
	refused, fault error
	claims         bool
	also           []string
	unsaid         []error
	asked          int
	change         fieldset.Change
}

func (a *asker) Question(context.Context, client.ObjectKey) ([]byte, error) { return nil, a.refused }

func (a *asker) Claims(context.Context, []byte) (*inplace.Claims, error) {
	a.asked++
	if a.fault != nil {
		return nil, a.fault
	}
	c := &inplace.Claims{Change: a.change, Unsaid: a.unsaid}
	for _, f := range a.change.Fields() {
		v := updaters.Verdict{Field: f, Reason: "nobody claims it"}
		if a.claims {
			v = updaters.Verdict{Field: f, Updater: registered.UpdaterPrefix + "disks", Actions: []updaters.Action{{Type: disruption.Drain}}}
		}
		c.Decision, c.Also = append(c.Decision, v), append(c.Also, a.also)
	}
	return c, nil
}

// answered has all questions asked that are due.
func (w *world) answered() {
	for w.view.askNext(w.T.Context()) {
	}
}

// registering is a world with a registered extension, of whose MachineDeployment a change is wanted that refit's own updaters do not make.
func registering(t *testing.T) (w *world, ask func(m *clusterv1.Machine) verdict, registration *refitv1.UpdaterRegistration) {
	registration = &refitv1.UpdaterRegistration{ObjectMeta: metav1.ObjectMeta{Name: "disks", UID: "uid-disks", Generation: 1}}
	w = newWorld(t, outside, append(fleet(command), registration, worker("w1", outdated))...)
	return w, func(m *clusterv1.Machine) verdict {
		look := func() verdict {
			w.view.Owners.begin()
			return w.view.Owners.verdict(t.Context(), m, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Generation: 1}}, false)
		}
		look()
		w.answered()
		return look()
	}, registration
}

// TestWhatARegisteredUpdaterMayClaimIsNoReplacement where none is asked: nobody knows then.
func TestWhatARegisteredUpdaterMayClaimIsNoReplacement(t *testing.T) {
	w, ask, registration := registering(t)
	require.Equal(t, refitv1.PendingReplacement, ask(worker("w1")).cause, "refit asks nobody")

	w.view.Owners.Registered = &registered.Registry{Client: w, Live: w}
	now := ask(worker("w1"))
	require.Equal(t, refitv1.PendingUnknown, now.cause)
	require.Contains(t, now.note, "spec.postKubeadmCommands of the bootstrapConfig can't be updated in place: ")
	require.Contains(t, now.note, "it may be claimed by UpdaterRegistration disks")

	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(registration), registration))
	registration.Spec.BootstrapKinds, registration.Generation = []string{"OtherConfig"}, 2
	require.NoError(t, w.Update(t.Context(), registration))
	require.Equal(t, refitv1.PendingReplacement, ask(worker("w1")).cause, "it is for other machines")
}

// TestRegisteredUpdatersAreAskedWhatTheyClaim: as Cluster API has refit ask them, and again each minute.
func TestRegisteredUpdatersAreAskedWhatTheyClaim(t *testing.T) {
	w, ask, _ := registering(t)
	change, err := w.view.Owners.Differences.Difference(t.Context(), client.ObjectKeyFromObject(worker("w1")))
	require.NoError(t, err)
	a := &asker{change: change, claims: true}
	w.view.Owners.Registered, w.view.Owners.Asker = &registered.Registry{Client: w, Live: w}, a
	now := ask(worker("w1"))
	require.Equal(t, refitv1.PendingInPlace, now.cause)
	require.Equal(t, "spec.postKubeadmCommands of the bootstrapConfig by UpdaterRegistration disks", now.note)
	require.True(t, now.material, "it drains")
	require.Equal(t, []refitv1.PendingClaim{{Object: "bootstrapConfig", Field: "spec.postKubeadmCommands", Registration: "disks"}}, now.claims)
	ask(worker("w1"))
	require.Equal(t, 1, a.asked)

	a.also, a.unsaid = []string{"one", "two"}, []error{errors.New("three is not known")}
	w.Clock.Step(askAgain + time.Second)
	require.Equal(t, "spec.postKubeadmCommands of the bootstrapConfig by UpdaterRegistration disks (UpdaterRegistration one, two would claim it, too); three is not known", ask(worker("w1")).note)

	for _, step := range []struct {
		becomes func()
		cause   refitv1.PendingCause
		says    string
	}{
		{func() { a.claims = false }, refitv1.PendingReplacement, "can't be updated in place: nobody claims it"},
		{func() { a.fault = &registered.Fault{Updater: "disks", Err: errors.New("it is slow")} }, refitv1.PendingUnknown, "UpdaterRegistration disks: it is slow"},
		{func() { a.refused = &rollback.RefusedError{Reason: "it goes"} }, refitv1.PendingUnknown, "it goes"},
		{func() { a.refused = errors.New("secret") }, refitv1.PendingUnknown, "what is wanted could not be read"},
	} {
		step.becomes()
		w.Clock.Step(askAgain + time.Second)
		now := ask(worker("w1"))
		require.Equal(t, step.cause, now.cause)
		require.Contains(t, now.note, step.says)
		require.NotContains(t, now.note, "secret")
		require.Empty(t, now.claims)
	}
}

// TestClaimsAreShownOnce for all Machines, in order, and not more than there is room for.
func TestClaimsAreShownOnce(t *testing.T) {
	claim := func(field, by string) refitv1.PendingClaim {
		return refitv1.PendingClaim{Object: "bootstrapConfig", Field: field, Registration: by}
	}
	one := &entry{claims: []refitv1.PendingClaim{claim("spec.b", "disks"), claim("spec.a", "disks")}}
	two := &entry{claims: []refitv1.PendingClaim{claim("spec.a", "disks"), claim("spec.a", "tuned")}}
	require.Equal(t, []refitv1.PendingClaim{claim("spec.a", "disks"), claim("spec.a", "tuned"), claim("spec.b", "disks")}, allClaims([]*entry{one, two, {}}))
	for i := range 2 * refitv1.MaxPendingClaims {
		one.claims = append(one.claims, claim(fmt.Sprintf("spec.c%d", i), "disks"))
	}
	require.Len(t, allClaims([]*entry{one, two}), refitv1.MaxPendingClaims)
}
