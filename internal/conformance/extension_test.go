package conformance_test

import (
	"cmp"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/conformance"
)

// suite returns one for a handler that is served by TLS.
func suite(t *testing.T, h http.Handler) *conformance.Suite {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	client, err := conformance.NewClient(bundle, nil, "")
	require.NoError(t, err)
	at, err := url.Parse(server.URL)
	require.NoError(t, err)
	return &conformance.Suite{Client: client, URL: at}
}

type object = map[string]any

// extension is one that claims files and ntp of KubeadmConfigs, and keeps all laws, unless something of it is replaced.
type extension struct {
	handlers func(all []object) []object // of discovery
	discover func(w http.ResponseWriter) // instead of discovery
	// before sees a request, and reports whether it has answered it.
	before func(w http.ResponseWriter, r *http.Request, hook string, body []byte) bool
	// claim changes current objects to what they can be made.
	claim func(current, desired claimed)
	// answer changes an answer.
	answer func(hook string, request, response object)

	reads int64 // the largest body; 0: maxRequest
	count atomic.Int64
	dead  atomic.Bool // no request is answered any more
}

// claimed are the objects of one side.
type claimed struct{ machine, infrastructure, bootstrap object }

const (
	group      = "hooks.runtime.cluster.x-k8s.io/v1alpha1"
	maxRequest = 1 << 20
)

func (e *extension) discovery() []object {
	var all []object
	for _, h := range [][2]string{{"can-machine", "CanUpdateMachine"}, {"can-set", "CanUpdateMachineSet"}, {"update", "UpdateMachine"}} {
		all = append(all, object{"name": h[0], "requestHook": object{"apiVersion": group, "hook": h[1]}, "timeoutSeconds": 30, "failurePolicy": "Fail"})
	}
	if e.handlers != nil {
		all = e.handlers(all)
	}
	return all
}

// ServeHTTP implements http.Handler.
func (e *extension) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if e.dead.Load() {
		panic(http.ErrAbortHandler)
	}
	if strings.HasSuffix(r.URL.Path, "/discovery") {
		if e.discover != nil {
			e.discover(w)
			return
		}
		write(w, object{"kind": "DiscoveryResponse", "status": "Success", "handlers": e.discovery()})
		return
	}
	hook := strings.Split(r.URL.Path, "/")[3]
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, cmp.Or(e.reads, maxRequest)))
	if e.before != nil && e.before(w, r, hook, body) {
		return
	}
	var request object
	if err == nil {
		err = json.Unmarshal(body, &request)
	}
	response := object{"status": "Success"}
	switch {
	case err != nil:
		response = object{"status": "Failure", "message": "the request can't be read"}
	case hook == "updatemachine":
		response["retryAfterSeconds"], response["message"] = 5, "going on"
	default:
		e.decide(hook, request, response)
	}
	if e.answer != nil {
		e.answer(hook, request, response)
	}
	write(w, response)
}

func write(w http.ResponseWriter, response object) { _ = json.NewEncoder(w).Encode(response) }

func child(o object, names ...string) object {
	for _, name := range names {
		o, _ = o[name].(object)
	}
	return o
}

// objectsOf returns the objects of one side.
func objectsOf(side object, hook string) claimed {
	if hook == "canupdatemachineset" {
		return claimed{child(side, "machineSet"), child(side, "infrastructureMachineTemplate"), child(side, "bootstrapConfigTemplate")}
	}
	return claimed{child(side, "machine"), child(side, "infrastructureMachine"), child(side, "bootstrapConfig")}
}

func specOf(o object) object {
	if spec := child(o, "spec", "template", "spec"); spec != nil {
		return spec
	}
	return child(o, "spec")
}

// decide patches objects by merge patches that have all that was changed in them.
func (e *extension) decide(hook string, request, response object) {
	current, desired := objectsOf(child(request, "current"), hook), objectsOf(child(request, "desired"), hook)
	for _, o := range []object{current.machine, current.infrastructure, desired.machine, desired.infrastructure} {
		if specOf(o) == nil {
			response["status"], response["message"] = "Failure", "an object is missing"
			return
		}
	}
	before := []string{text(current.machine), text(current.infrastructure), text(current.bootstrap)}
	claim := e.claim
	if claim == nil {
		claim = claimRightly
	}
	claim(current, desired)
	fields := []string{"machinePatch", "infrastructureMachinePatch", "bootstrapConfigPatch"}
	if hook == "canupdatemachineset" {
		fields = []string{"machineSetPatch", "infrastructureMachineTemplatePatch", "bootstrapConfigTemplatePatch"}
	}
	for i, o := range []object{current.machine, current.infrastructure, current.bootstrap} {
		if after := text(o); after != before[i] {
			var operations []object
			for _, name := range []string{"spec", "status"} {
				if v, ok := o[name]; ok {
					operations = append(operations, object{"op": "add", "path": "/" + name, "value": v})
				}
			}
			response[fields[i]] = object{"patchType": "JSONPatch", "patch": []byte(text(operations))}
		}
	}
}

func text(v any) string {
	data, _ := json.Marshal(v)
	return string(data)
}

// claimRightly claims files and ntp.
func claimRightly(current, desired claimed) {
	kind, _ := current.bootstrap["kind"].(string)
	if kind != "KubeadmConfig" && kind != "KubeadmConfigTemplate" {
		return
	}
	bring("files", current, desired)
	bring("ntp", current, desired)
}

// bring makes a field of the bootstrap config what desired has, and reports whether it was not.
func bring(field string, current, desired claimed) bool {
	from, to := specOf(desired.bootstrap), specOf(current.bootstrap)
	if reflect.DeepEqual(from[field], to[field]) {
		return false
	}
	if v, ok := from[field]; ok {
		to[field] = v
	} else {
		delete(to, field)
	}
	return true
}
