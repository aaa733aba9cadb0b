package conformance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
)

// each changes the handler for CanUpdateMachine in discovery.
func each(change func(h object)) func([]object) []object {
	return func(all []object) []object {
		change(all[0])
		return all
	}
}

// patchOf changes the patch of the bootstrap config, if there is one.
func patchOf(change func(patch object)) func(string, object, object) {
	return func(_ string, _, response object) {
		for _, field := range []string{"bootstrapConfigPatch", "bootstrapConfigTemplatePatch"} {
			if patch, ok := response[field].(object); ok {
				change(patch)
			}
		}
	}
}

// update changes answers of UpdateMachine.
func update(change func(response object)) func(string, object, object) {
	return func(hook string, request, response object) {
		if hook == "updatemachine" && request != nil {
			change(response)
		}
	}
}

// unknown is in requests with a kind that nobody knows.
const unknown = "ConformanceMachine"

// bodies answers requests with a kind that nobody knows.
func bodies(do func(w http.ResponseWriter)) func(http.ResponseWriter, *http.Request, string, []byte) bool {
	return func(w http.ResponseWriter, _ *http.Request, _ string, body []byte) bool {
		if !bytes.Contains(body, []byte(unknown)) {
			return false
		}
		do(w)
		return true
	}
}

// beside claims something more when a right extension claims something.
func beside(claim func(current, desired claimed)) func(current, desired claimed) {
	return func(current, desired claimed) {
		before := text(current.bootstrap)
		if claimRightly(current, desired); text(current.bootstrap) != before {
			claim(current, desired)
		}
	}
}

func says(response object) func(w http.ResponseWriter) {
	return func(w http.ResponseWriter) { write(w, response) }
}

func abort(http.ResponseWriter) { panic(http.ErrAbortHandler) }

func isUnknown(o object) bool { return strings.HasPrefix(fmt.Sprint(o["kind"]), "Conformance") }

// pathsOf are the paths of the desired files.
func pathsOf(hook string, request object) []string {
	var paths []string
	spec := specOf(objectsOf(child(request, "desired"), hook).bootstrap)
	files, _ := spec["files"].([]any)
	for _, f := range files {
		path, _ := f.(object)["path"].(string)
		paths = append(paths, path)
	}
	return paths
}

// breaks are extensions that break one law each.
func breaks() map[string][]*extension {
	all := map[string][]*extension{}
	for _, some := range []map[string][]*extension{wrongDiscovery(), wrongPatches(), wrongDecisions(), wrongBodies(), wrongAnswers(), wrongMessages()} {
		for name, extensions := range some {
			all[name] = extensions
		}
	}
	return all
}

func wrongDiscovery() map[string][]*extension {
	return map[string][]*extension{
		"discovery": {
			{discover: func(w http.ResponseWriter) { http.Error(w, "no", http.StatusNotFound) }},
			{discover: func(w http.ResponseWriter) { _, _ = w.Write([]byte("hello")) }},
			{discover: func(w http.ResponseWriter) { _, _ = w.Write(bytes.Repeat([]byte(" "), 2<<20)) }},
			{discover: says(object{"status": "Failure", "message": "no"})},
			{discover: says(object{"status": "Success"})},
		},
		"handler-names": {
			{handlers: each(func(h object) { h["name"] = "Can_Update" })},
			{handlers: each(func(h object) { h["name"] = "can-set" })},
		},
		"handler-hooks": {
			{handlers: func(all []object) []object {
				return append(all, object{"name": "another", "requestHook": object{"apiVersion": group, "hook": "CanUpdateMachine"}})
			}},
			{handlers: each(func(h object) { h["requestHook"] = object{"apiVersion": group, "hook": "CanUpdateEverything"} })},
			{handlers: each(func(h object) {
				h["requestHook"] = object{"apiVersion": "hooks.runtime.cluster.x-k8s.io/v9", "hook": "CanUpdateMachine"}
			})},
			{handlers: each(func(h object) { h["requestHook"] = object{"apiVersion": "a/b/c", "hook": "CanUpdateMachine"} })},
			{handlers: func(all []object) []object { return all[:2] }},
			{handlers: func(all []object) []object { return all[2:] }},
		},
		"failure-policy":  {{handlers: each(func(h object) { h["failurePolicy"] = "Ignore" })}},
		"timeout-seconds": {{handlers: each(func(h object) { h["timeoutSeconds"] = 31 })}},
	}
}

func wrongPatches() map[string][]*extension {
	return map[string][]*extension{
		"patch-kind": {
			{answer: patchOf(func(patch object) { patch["patchType"] = "StrategicMergePatch" })},
			{answer: patchOf(func(patch object) { delete(patch, "patchType") })},
			{answer: patchOf(func(patch object) { delete(patch, "patch") })},
		},
		"patch-applies": {
			{answer: patchOf(func(patch object) { patch["patch"] = []byte(`[{"op":"replace","path":"/spec/no/where","value":1}]`) })},
			{answer: patchOf(func(patch object) { patch["patch"] = []byte(`{"spec":`) })},
			{answer: patchOf(func(patch object) { patch["patch"] = []byte(`[{"op":"add","path":"","value":[]}]`) })},
			{answer: patchOf(func(patch object) { patch["patchType"], patch["patch"] = "JSONMergePatch", []byte(`[1]`) })},
		},
		"patch-inside-spec": {{claim: beside(func(current, _ claimed) { current.machine["status"] = object{} })}},
		"patch-only-differences": {
			{claim: beside(func(current, _ claimed) { specOf(current.bootstrap)["format"] = "ignition" })},
			{claim: beside(func(current, _ claimed) { delete(specOf(current.bootstrap), "joinConfiguration") })},
		},
		"patch-reaches-desired": {{claim: func(current, desired claimed) {
			from, _ := specOf(current.bootstrap)["files"].([]any)
			to, _ := specOf(desired.bootstrap)["files"].([]any)
			claimRightly(current, desired)
			if len(from) == 1 && len(to) == 1 && from[0].(object)["content"] != to[0].(object)["content"] {
				file := maps.Clone(to[0].(object))
				file["content"] = "neither\n"
				specOf(current.bootstrap)["files"] = []any{file}
			}
		}}},
	}
}

func wrongDecisions() map[string][]*extension {
	counts, wavers := &extension{}, &extension{}
	counts.answer = func(hook string, _, response object) {
		if hook != "updatemachine" {
			response["message"] = fmt.Sprintf("request %d", counts.count.Add(1))
		}
	}
	wavers.answer = func(hook string, request, response object) {
		if hook != "updatemachine" && wavers.count.Add(1)%2 == 0 {
			patchOf(func(object) {
				delete(response, "bootstrapConfigPatch")
				delete(response, "bootstrapConfigTemplatePatch")
			})(hook, request, response)
		}
	}
	changesMind := &extension{}
	changesMind.answer = func(hook string, _, response object) {
		if hook != "updatemachine" && changesMind.count.Add(1)%2 == 0 {
			patchOf(func(patch object) {
				patch["patchType"], patch["patch"] = "JSONMergePatch", []byte(`{"spec": {"ntp": null}}`)
			})(hook, nil, response)
		}
	}
	finishes := &extension{}
	finishes.answer = update(func(response object) {
		if finishes.count.Add(1) == 1 {
			response["retryAfterSeconds"] = 0
		}
	})
	return map[string][]*extension{
		"deterministic": {counts, wavers, changesMind},
		"nothing-differs": {{answer: func(_ string, request, response object) {
			if request["current"] != nil && text(request["current"]) == text(request["desired"]) {
				response["status"], response["message"] = "Failure", "there is nothing to do"
			}
		}}},
		"claims-at-once": {{claim: func(current, desired claimed) {
			if isUnknown(current.bootstrap) || bring("files", current, desired) {
				return
			}
			bring("ntp", current, desired)
		}}},
		"unknown-kinds": {
			{claim: func(current, desired claimed) {
				if claimRightly(current, desired); isUnknown(current.infrastructure) {
					current.infrastructure["spec"] = desired.infrastructure["spec"]
				}
			}},
			{claim: func(current, desired claimed) {
				if claimRightly(current, desired); isUnknown(current.bootstrap) {
					current.bootstrap["spec"] = desired.bootstrap["spec"]
				}
			}},
		},
		"unknown-fields": {
			{claim: func(current, desired claimed) {
				claimRightly(current, desired)
				bring("refitConformance", current, desired)
			}},
			{claim: func(current, desired claimed) { // as one that decodes into types
				claimRightly(current, desired)
				delete(specOf(current.bootstrap), "refitConformance")
			}},
		},
		"update-repeats": {finishes},
	}
}

func wrongBodies() map[string][]*extension {
	broken := func(body []byte) bool { return len(body) < 20_000 && !json.Valid(body) }
	ends := func(when func(body []byte) bool) *extension {
		e := &extension{}
		e.before = func(_ http.ResponseWriter, _ *http.Request, _ string, body []byte) bool {
			if when(body) {
				e.dead.Store(true)
				panic(http.ErrAbortHandler)
			}
			return false
		}
		return e
	}
	accepts := func(reads int64, when func(body []byte) bool) *extension {
		return &extension{reads: reads, before: func(w http.ResponseWriter, _ *http.Request, _ string, body []byte) bool {
			if when(body) {
				write(w, object{"status": "Success"})
			}
			return when(body)
		}}
	}
	typed := func(is string, do func(w http.ResponseWriter)) *extension {
		return &extension{before: func(w http.ResponseWriter, r *http.Request, _ string, _ []byte) bool {
			if r.Header.Get("Content-Type") == is {
				do(w)
			}
			return r.Header.Get("Content-Type") == is
		}}
	}
	deep := func(body []byte) bool { return bytes.Contains(body, []byte("[[[[[[[[")) }
	huge := func(body []byte) bool { return len(body) >= maxRequest }
	return map[string][]*extension{
		"content-type": {
			typed("", func(w http.ResponseWriter) { http.Error(w, "no", http.StatusUnsupportedMediaType) }),
			typed("application/json", says(object{"status": "Failure", "message": "no"})),
			typed("application/x-www-form-urlencoded", abort),
		},
		"more-of-a-request": {{answer: func(hook string, request, response object) {
			if request["refitConformance"] != nil {
				delete(response, "bootstrapConfigPatch")
				delete(response, "bootstrapConfigTemplatePatch")
			}
		}}},
		"broken-body": {accepts(maxRequest, broken), ends(broken)},
		"deep-body":   {accepts(maxRequest, deep), ends(deep)},
		"huge-body":   {accepts(2*maxRequest, huge), ends(huge)},
	}
}

func wrongAnswers() map[string][]*extension {
	hangs := &extension{
		handlers: each(func(h object) { h["timeoutSeconds"] = 1 }),
		before: func(_ http.ResponseWriter, r *http.Request, hook string, _ []byte) bool {
			if hook != "canupdatemachine" {
				return false
			}
			<-r.Context().Done() // whoever asks has gone
			return true
		},
	}
	return map[string][]*extension{
		"timely": {hangs},
		"response": {
			{before: bodies(func(w http.ResponseWriter) { http.Error(w, "no", http.StatusInternalServerError) })},
			{before: bodies(func(w http.ResponseWriter) { http.Error(w, "no", http.StatusTemporaryRedirect) })},
			{before: bodies(func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"status":"Success"`)) })},
			{before: bodies(func(w http.ResponseWriter) { _, _ = w.Write([]byte("\xff")) })},
			{before: bodies(func(w http.ResponseWriter) { _, _ = w.Write([]byte(strings.Repeat("[", 1000))) })},
			{before: bodies(says(object{"status": 5}))},
			{before: bodies(says(object{"status": "Success", "machinePatch": object{"patch": "%"}, "machineSetPatch": object{"patch": "%"}}))},
			{before: bodies(abort)},
		},
		"answer-size": {{answer: func(_ string, _, response object) { response["more"] = strings.Repeat("x", 2<<20) }}},
		"status": {
			{before: bodies(says(object{"message": "yes"}))},
			{before: bodies(says(object{"status": "Fine"}))},
			{answer: func(hook string, _, response object) {
				if hook == "canupdatemachine" {
					response["status"] = "Fine"
				}
			}},
		},
		"failure-message": {{before: bodies(says(object{"status": "Failure"}))}},
		"retry-after": {
			{answer: func(_ string, _, response object) { response["retryAfterSeconds"] = 5 }},
			{answer: update(func(response object) { delete(response, "retryAfterSeconds") })},
			{answer: update(func(response object) { response["retryAfterSeconds"] = -5 })},
			{answer: update(func(response object) { response["status"], response["message"] = "Failure", "no" })},
		},
	}
}

func wrongMessages() map[string][]*extension {
	return map[string][]*extension{
		"message-secrets": {
			{answer: func(hook string, request, response object) {
				spec := specOf(objectsOf(child(request, "desired"), hook).bootstrap)
				response["message"] = fmt.Sprint("joins with ", child(spec, "joinConfiguration", "discovery", "bootstrapToken")["token"])
			}},
			{before: func(w http.ResponseWriter, _ *http.Request, _ string, body []byte) bool {
				var request struct {
					Desired struct {
						BootstrapConfig struct{ Spec struct{ Users []any } }
					}
				}
				if !json.Valid(body) || json.Unmarshal(body, &request) == nil {
					return false
				}
				http.Error(w, "can't read "+string(body), http.StatusBadRequest)
				return true
			}},
		},
		"message-printable": {
			{answer: func(hook string, request, response object) {
				if paths := pathsOf(hook, request); len(paths) > 0 {
					response["message"] = "looked at " + paths[0]
				}
			}},
		},
		"message-length": {{answer: func(hook string, request, response object) {
			response["message"] = fmt.Sprintf("looked at %q", pathsOf(hook, request))
		}}},
	}
}
