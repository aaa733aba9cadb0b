// Package registeredtest has a fake of a runtime extension that is registered as an updater.
package registeredtest

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// Answer answers a hook, whose name is in lower case. A string or bytes are sent as they are, all else as JSON; nil is HTTP status 500.
type Answer func(hook string, request []byte) any

// Extension starts an extension that answers over TLS until the test ends, and returns its registration, with its handlers discovered.
func Extension(t testing.TB, name string, answer Answer) *refitv1.UpdaterRegistration {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		path := strings.Split(strings.TrimPrefix(r.URL.Path, "/hooks.runtime.cluster.x-k8s.io/v1alpha1/"), "/")
		switch a := answer(path[0], body).(type) {
		case nil:
			w.WriteHeader(http.StatusInternalServerError)
		case string:
			_, _ = io.WriteString(w, a) // whoever has asked may be gone
		case []byte:
			_, _ = w.Write(a)
		default:
			_ = json.NewEncoder(w).Encode(a)
		}
	}))
	t.Cleanup(server.Close)
	u := &refitv1.UpdaterRegistration{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1}}
	u.Spec.ClientConfig.URL = server.URL
	u.Spec.ClientConfig.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	u.Spec.TimeoutSeconds, u.Spec.Disturbs = 600, refitv1.UpdaterDisturbsNone // a machine that runs tests may be busy for long
	u.Status.ObservedGeneration = 1
	u.Status.Handlers = refitv1.UpdaterHandlers{CanUpdateMachine: "can", CanUpdateMachineSet: "can-set", UpdateMachine: "update"}
	return u
}
