package machineupdate

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// updateSchema returns the schema of MachineUpdates, and what validates by it as an API server does.
func updateSchema(t *testing.T) (*apiextensions.JSONSchemaProps, func(*refitv1.MachineUpdate) field.ErrorList) {
	t.Helper()
	data, err := os.ReadFile("../../config/crd/bases/capi-refit.dev_machineupdates.yaml")
	require.NoError(t, err)
	v1 := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.UnmarshalStrict(data, v1))
	out := &apiextensions.CustomResourceDefinition{}
	require.NoError(t, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(v1, out, nil))
	validation := out.Spec.Validation
	if validation == nil {
		validation = out.Spec.Versions[0].Schema
	}
	validator, _, err := schemavalidation.NewSchemaValidator(validation.OpenAPIV3Schema)
	require.NoError(t, err)
	return validation.OpenAPIV3Schema, func(mu *refitv1.MachineUpdate) field.ErrorList {
		text, err := json.Marshal(mu)
		require.NoError(t, err)
		var obj map[string]any
		require.NoError(t, json.Unmarshal(text, &obj))
		errs := schemavalidation.ValidateCustomResource(nil, obj, validator)
		for _, e := range errs {
			e.BadValue = "…" // it may be very long
		}
		return errs
	}
}

// notCut are what identifies something. What it comes from has the same limits: a spec's digest, and the names of objects.
var notCut = map[string]bool{
	"status.observedDigest": true, "status.appliedDigest": true, "status.nodeRecords[]": true, "status.node.name": true, "status.hostKey": true,
	"status.heldDigest": true,
}

// ownWords are what refit itself says. What nodes say is of any words: an agent may know more of them than the definition.
var ownWords = map[string]bool{
	"status.phase": true, "status.admission.role": true, "status.rollback.state": true, "status.conditions[].status": true,
	"status.delayedEnd.request": true,
}

// valueOf returns a value that a schema takes but for its limits, all of which it exceeds if it is to be long.
func valueOf(path string, s *apiextensions.JSONSchemaProps, long bool) any {
	switch {
	case len(s.Enum) > 0 && ownWords[path]:
		return s.Enum[0]
	case len(s.Enum) > 0:
		panic(path + " takes some words only: one that a node says would stop its update for good")
	case s.Type == "object":
		out := map[string]any{}
		for name := range s.Properties {
			p := s.Properties[name]
			out[name] = valueOf(path+"."+name, &p, long)
		}
		return out
	case s.Type == "array":
		out := []any{valueOf(path+"[]", s.Items.Schema, long)}
		for range *s.MaxItems + 3 {
			out = append(out, valueOf(path+"[]", s.Items.Schema, false))
		}
		return out
	case s.Type == "integer":
		return 1
	case s.Type == "boolean":
		return true
	case s.Format == "date-time" && s.Pattern != "": // to the microsecond
		return "2026-10-03T20:00:00.000000Z"
	case s.Format == "date-time":
		return "2026-10-03T20:00:00Z"
	case s.Pattern != "" || s.MaxLength == nil || notCut[path] || !long: // words of refit's
		return "word"
	default:
		return strings.Repeat("é", int(*s.MaxLength)+3)
	}
}

// TestAStatusFits has all that a status may say be too long for the CustomResourceDefinition.
func TestAStatusFits(t *testing.T) {
	schema, validate := updateSchema(t)
	status := schema.Properties["status"]
	text, err := json.Marshal(valueOf("status", &status, true))
	require.NoError(t, err)
	mu := &refitv1.MachineUpdate{Spec: refitv1.MachineUpdateSpec{Digest: "d"}}
	require.NoError(t, json.Unmarshal(text, &mu.Status))
	require.Greater(t, len(validate(mu)), 30, "nothing is cut yet")

	fit(&mu.Status)
	require.Empty(t, validate(mu))
	mu.Spec.Record = &refitv1.UpdateRecord{Status: durable(&mu.Status)}
	require.Empty(t, validate(mu))
	for _, list := range [][]string{mu.Status.Actions, mu.Status.Notes, mu.Status.Plan.Actions, mu.Status.Drain.Blocked, mu.Status.Admission.Policies} {
		require.Equal(t, andMore, list[len(list)-1])
		require.Contains(t, list[0], strings.TrimSpace(leftOut))
	}
	require.Equal(t, andMore, mu.Status.Changes[len(mu.Status.Changes)-1].Name)
	again := mu.Status.DeepCopy()
	fit(again)
	require.Equal(t, mu.Status, *again, "what was cut is not cut again")
}

func TestWhatFitsIsNotCut(t *testing.T) {
	for _, text := range []string{"", "short", strings.Repeat("é", 512)} {
		require.Equal(t, text, shorten(text, 512))
	}
	list := []string{"a", "b"}
	require.Equal(t, list, shortenAll(list, 2, 1))
	text := "write /etc/a" + strings.Repeat("x", 9000) + "; to go on: refit retry"
	require.Regexp(t, "^write /etc/ax+ … x+; to go on: refit retry$", shorten(text, 4096))
}

// validating has MachineUpdates be validated by their CustomResourceDefinition.
func (w *world) validating() {
	w.t.Helper()
	_, validate := updateSchema(w.t)
	check := func(obj client.Object) error {
		mu, ok := obj.(*refitv1.MachineUpdate)
		if !ok {
			return nil
		}
		if errs := validate(mu); len(errs) > 0 {
			return apierrors.NewInvalid(refitv1.GroupVersion.WithKind("MachineUpdate").GroupKind(), mu.Name, errs)
		}
		return nil
	}
	w.reconciler.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			if err := check(obj); err != nil {
				return err
			}
			return c.SubResource(sub).Update(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			if mu, ok := obj.(*refitv1.MachineUpdate); ok {
				spec := mu.DeepCopy()
				spec.Status = refitv1.MachineUpdateStatus{} // which this does not write
				if err := check(spec); err != nil {
					return err
				}
			}
			return c.Patch(ctx, obj, p, opts...)
		},
	})
}

func manyFiles(n int) node.Plan {
	plan := node.Plan{Actions: []disruption.Action{{Type: disruption.Drain}}}
	for i := range n {
		name := fmt.Sprintf("/etc/app/%s/%03d.conf", strings.Repeat("d", 150), i)
		plan.Changes = append(plan.Changes, node.Change{Ref: node.FileRef(name), Operation: node.Write})
	}
	return plan
}

func TestAnUpdateOfManyFilesWithLongPaths(t *testing.T) {
	w := planned(t, drainA)
	plan := manyFiles(1200)
	end := node.Plan{}
	for i := range 101 {
		end.Drift = append(end.Drift, node.Drift{Ref: node.FileRef(fmt.Sprintf("/etc/app/%d", i)), What: []string{"owner"}})
	}
	done := succeeded
	done.Changes = plan.Changes
	w.node.plans, w.node.applied = []node.Plan{plan, end}, []node.Status{done}
	w.validating()
	for range 3 {
		w.reconcile()
	}
	st := w.requirePhase(refitv1.PhaseSucceeded)
	require.Len(t, st.Changes, 1000)
	require.Len(t, st.Notes, 100)
	require.Nil(t, st.Slot)
	require.True(t, w.ask())
}

// TestLongAnnotations are acted upon once for each value, also where only the end differs.
func TestLongAnnotations(t *testing.T) {
	long := "2026-10-03T20:00:00Z alice: " + strings.Repeat("since the disk was full ", 12)
	for name, tc := range map[string]struct {
		annotation string
		asked      func(*refitv1.MachineUpdate) bool
		left       func(*refitv1.MachineUpdateStatus) string
	}{
		"retry":    {refitv1.RetryAnnotation, retryAsked, func(s *refitv1.MachineUpdateStatus) string { return s.ObservedRetry }},
		"abandon":  {refitv1.AbandonAnnotation, abandonAsked, func(s *refitv1.MachineUpdateStatus) string { return s.ObservedAbandon }},
		"rollback": {refitv1.RollbackAnnotation, rollbackAsked, func(s *refitv1.MachineUpdateStatus) string { return s.Rollback.Request }},
	} {
		t.Run(name, func(t *testing.T) {
			w := failed(t, false)
			w.validating()
			w.node.applied = []node.Status{{State: node.Failed, Token: 9, Message: "restart app.service failed"}}
			for _, end := range []string{"one", "two"} {
				mu := w.update()
				mu.Annotations = map[string]string{tc.annotation: long + end}
				require.NoError(t, w.Update(t.Context(), mu))
				require.True(t, tc.asked(w.update()))
				for range 3 {
					w.reconcile()
				}
				require.False(t, tc.asked(w.update()), "it is acted upon once")
				st := w.requirePhase(refitv1.PhaseFailed)
				require.Regexp(t, "^2026-10-03T20:00:00Z alice: .*… sha256:[0-9a-f]{64}$", tc.left(&st))
			}
		})
	}
}
