package system

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tidwall/gjson"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

// workTime is how long a Liar that tells the truth is at work on a Machine.
const workTime = 2 * time.Second

// liarHooks are the hooks that a Liar answers, by their names in paths.
var liarHooks = map[string]string{"canupdatemachine": "CanUpdateMachine", "canupdatemachineset": "CanUpdateMachineSet", "updatemachine": "UpdateMachine"}

// answer returns the answer to a hook, and the lie that it is. Discovery is always answered truly.
func (l *Liar) answer(hook string, request []byte) ([]byte, Lie) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch hook {
	case "discovery":
		return discovered(), Truth
	case "updatemachine":
		machine := gjson.GetBytes(request, "desired.machine")
		name := machine.Get("metadata.name").Str
		lie, own := l.works[name]
		if !own {
			lie = l.works[""]
		}
		return l.work(name, machine.Get("spec.failureDomain").Str, lie), lie
	default:
		l.asked++
		return l.claim(hook, request), l.claims
	}
}

func discovered() []byte {
	var handlers []map[string]any
	for path, hook := range liarHooks {
		handlers = append(handlers, map[string]any{"name": path, "requestHook": map[string]any{"apiVersion": runtimehooksv1.GroupVersion.String(), "hook": hook}})
	}
	return inJSON(map[string]any{"status": "Success", "handlers": handlers})
}

// claim claims the failure domain.
func (l *Liar) claim(hook string, request []byte) []byte {
	object, other, wrap := "machine", "machineSet", `{"spec": %s}`
	if hook == "canupdatemachineset" {
		object, other, wrap = other, object, `{"spec": {"template": {"spec": %s}}}`
	}
	specOf := func(side string) gjson.Result {
		spec := gjson.GetBytes(request, side+"."+object+".spec")
		if hook == "canupdatemachineset" {
			spec = spec.Get("template.spec")
		}
		return spec
	}
	answer := map[string]any{"status": "Success", "kind": liarHooks[hook] + "Response"}
	desired := specOf("desired").Get("failureDomain").Str
	if specOf("current").Get("failureDomain").Str == desired {
		return inJSON(answer)
	}
	answer[object+"Patch"] = patch("JSONMergePatch", fmt.Sprintf(wrap, inJSON(map[string]any{"failureDomain": desired})))
	return inJSON(l.twist(answer, object, other, wrap))
}

// twist makes a lie of an answer that is true.
func (l *Liar) twist(answer map[string]any, object, other, wrap string) map[string]any {
	claim := answer[object+"Patch"]
	switch l.claims {
	case Fails:
		return failed()
	case AnotherHook:
		answer["kind"] = "DiscoveryResponse"
	case AnotherObject:
		delete(answer, object+"Patch")
		answer[other+"Patch"] = claim
	case DoesNotApply:
		answer[object+"Patch"] = patch("JSONPatch", `[{"op": "remove", "path": "/spec/nothing"}]`)
	case OutsideOfSpec:
		answer[object+"Patch"] = patch("JSONMergePatch", `{"metadata": {"labels": {"liar": "was-here"}}}`)
	case DoesNotDiffer:
		answer[object+"Patch"] = patch("JSONMergePatch", fmt.Sprintf(wrap, `{"version": "v9.9.9"}`))
	case ChangesItsMind:
		if l.asked%2 == 0 {
			delete(answer, object+"Patch")
		}
	default: // it is true, or is not sent
	}
	return answer
}

func patch(kind, text string) map[string]any {
	return map[string]any{"patchType": kind, "patch": []byte(text)}
}

// work brings a Machine to a failure domain, and says how that stands.
func (l *Liar) work(machine, domain string, lie Lie) []byte {
	done := map[string]any{"status": "Success", "message": "the failure domain is " + domain}
	switch lie {
	case Fails:
		return inJSON(failed())
	case AnotherHook:
		done["kind"] = "CanUpdateMachineResponse"
		return inJSON(done)
	case DoneAtOnce:
		return inJSON(done)
	case Truth, GoesOn:
	default:
		return nil // what is sent is no answer
	}
	if l.made[machine] == domain {
		delete(l.began, machine)
		return inJSON(done)
	}
	began, ok := l.began[machine]
	switch {
	case !ok:
		l.began[machine] = time.Now()
	case lie == Truth && time.Since(began) >= workTime:
		delete(l.began, machine)
		l.made[machine] = domain
		return inJSON(done)
	}
	return inJSON(map[string]any{"status": "Success", "message": "moving it to " + domain, "retryAfterSeconds": 1})
}

func failed() map[string]any {
	return map[string]any{"status": "Failure", "message": "it does not\nfeel like it"}
}

func inJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil { // of maps of strings there is none
		panic(err)
	}
	return data
}
