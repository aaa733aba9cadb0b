package attack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/capi-refit/refit/internal/jsonscan"
)

// The bounds of what FuzzHook sends, and of what an answer to it may take. They are far from what is usual, and what is not linear
// is far beyond them.
const (
	fuzzedBytes = 256 << 10
	// fuzzedTime bounds the whole answer by the context of its request: one that ends is answered with a Failure that says so.
	fuzzedTime = 20 * time.Second
	// Of memory an answer may take in all, freed or not, some for itself, for each byte, and for each value.
	fuzzedMemory, fuzzedMemoryOfByte, fuzzedMemoryOfValue = 16 << 20, 512, 32 << 10
)

// FuzzHook sends any bytes to any hook: there is always an answer with a status, within the time and the memory that what was
// sent may take.
func FuzzHook(f *testing.F) {
	on := ctrlwebhook.NewServer(ctrlwebhook.Options{})
	paths := register(f, on, prometheus.NewRegistry())
	for _, seed := range []struct {
		hook uint8
		name string
	}{
		{1, "canupdatemachine-file-content"}, {1, "canupdatemachine-mixed"}, {1, "canupdatemachine-users"}, {1, "canupdatemachine-version"},
		{2, "canupdatemachineset-file-removed"}, {2, "canupdatemachineset-files-ntp-users"}, {3, "updatemachine-worker"},
	} {
		f.Add(seed.hook, recorded(f, seed.name))
	}
	f.Add(uint8(0), []byte(`{}`))
	f.Add(uint8(4), []byte(`{"kind":"BeforeClusterUpgradeRequest","cluster":{"metadata":{"name":"a","namespace":"b"}},"toKubernetesVersion":"v1.36.0"}`))
	f.Add(uint8(1), []byte(strings.Repeat("[", 1000)))
	f.Add(uint8(2), sides{
		bootstrap: [2]string{
			`"files":[` + each(20, `{"path":"/etc/motd/%"}`) + `],"joinConfiguration":{"nodeRegistration":{"taints":[{"key":"a","effect":"NoExecute"}]}}`,
			`"files":[` + each(20, `{"path":"/etc/issue/%","encoding":"gzip+base64","content":"H4sIAAAAAAAA"}`) + `],"ntp":{"servers":["a","[b"]}`,
		},
		infrastructure: [2]string{`"ami":{"id":"a"}`, `"ami":{"id":"b"},"tags":{"a":null}`}, machine: [2]string{`"version":"v1.35.0"`, ""},
	}.request())
	f.Fuzz(func(t *testing.T, hook uint8, body []byte) {
		body = body[:min(len(body), fuzzedBytes)]
		ctx, cancel := context.WithTimeout(t.Context(), fuzzedTime)
		defer cancel()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, paths[int(hook)%len(paths)], bytes.NewReader(body))
		on.WebhookMux().ServeHTTP(w, r)
		runtime.ReadMemStats(&after)

		require.Equal(t, http.StatusOK, w.Code)
		var a answer
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a))
		require.Contains(t, []string{"Success", "Failure"}, a.Status)
		require.NotContains(t, a.Message, "internal error")
		require.NotContains(t, a.Message, "please report this")
		require.NotContains(t, a.Message, context.DeadlineExceeded.Error())
		most := fuzzedMemory + fuzzedMemoryOfByte*len(body) + fuzzedMemoryOfValue*jsonscan.Scan(body).Values
		require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(most))
	})
}
