package conformance

// Law is what an extension for in-place updates has to keep.
type Law struct {
	// Name is how results name it.
	Name string `json:"name"`
	// Demands says what it demands.
	Demands string `json:"demands"`
	// Source says where that comes from.
	Source string `json:"source"`
}

// Where laws come from. Paths are of sigs.k8s.io/cluster-api v1.14.2.
const (
	fromClient     = "internal/runtime/client/client.go"
	fromServer     = "exp/runtime/server/server.go"
	fromPatch      = "internal/util/patch/patch.go"
	fromTypes      = "api/runtime/hooks/v1alpha1"
	fromGuidelines = "Cluster API's book, Implementing Runtime Extensions, "
	fromBook       = "Cluster API's book, Implementing in-place update hooks"
	fromReplaced   = "controlplane/kubeadm/reconcilers/kubeadmcontrolplane/inplace_canupdatemachine.go: what is not covered is replaced"
	fromCommitted  = "Cluster API asks UpdateMachine for all that was claimed, and never falls back to a replacement"
)

var (
	lawDiscovery = Law{"discovery", "Discovery is answered with Success and a list of handlers.", fromClient + ", Discover"}
	lawNames     = Law{"handler-names", "The name of a handler is a DNS label, and no other handler of the server has it.", fromClient + ", defaultAndValidateDiscoveryResponse"}
	lawHooks     = Law{"handler-hooks", "Handlers are for hooks that Cluster API knows. One is for UpdateMachine, one or two for CanUpdateMachine and CanUpdateMachineSet, and no two for the same.",
		fromClient + "; the callers of these hooks, \"only one hook is supported\""}
	lawFailurePolicy = Law{"failure-policy", "The failurePolicy of handlers is Fail, or is left out, which is the same.",
		fromClient + ", CallExtension: by Ignore a machine is replaced, or an update taken for done, when the extension can't be reached"}
	lawTimeout = Law{"timeout-seconds", "The timeoutSeconds of handlers are 1 to 30, or left out, which is 10.", fromClient + ", defaultAndValidateDiscoveryResponse"}

	lawPatchKind    = Law{"patch-kind", "A patch has patchType JSONPatch or JSONMergePatch, and something to apply.", fromTypes + ", Patch; " + fromPatch}
	lawPatchApplies = Law{"patch-applies", "A patch applies to the current object of the request, and leaves an object.", fromPatch + ", ApplyPatchToObject: what does not apply is an error, and not a no"}
	lawPatchInside  = Law{"patch-inside-spec", "A patch changes nothing outside of spec, of templates and MachineSets outside of spec.template.spec.",
		fromBook + ": only fields in spec have to be covered; Cluster API drops the rest"}
	lawPatchDiffers = Law{"patch-only-differences", "A patch changes no field that is the same in current and desired.", fromReplaced + ", and so is a machine with a field that was the same before"}
	lawPatchReaches = Law{"patch-reaches-desired", "A field that a patch changes has the value of desired then.", fromReplaced + ", and a value between current and desired covers nothing"}

	lawDeterministic = Law{"deterministic", "The same request is given the same answer, with the same message; the order of a patch's operations is free.", fromGuidelines + "Deterministic result, Error messages"}
	lawEqual         = Law{"nothing-differs", "When current and desired are equal the answer is Success, and its patches change nothing.", fromGuidelines + "Idempotence"}
	lawIdempotent    = Law{"claims-at-once", "Asked again with current as its patches have left it, an extension claims nothing more.",
		fromGuidelines + "Idempotence; Cluster API asks once, and replaces what was not claimed then"}
	lawUnknownKind  = Law{"unknown-kinds", "A change of an infrastructure machine or a bootstrap config of a kind that nobody has is not claimed.", fromCommitted}
	lawUnknownField = Law{"unknown-fields", "A field that nobody knows is not touched: not when it is added, changed or removed.",
		fromCommitted + "; by types that lack a field, decoding and encoding removes it"}
	lawUpdateRepeats = Law{"update-repeats", "UpdateMachine may be called again with the same request, and an update that was done is not in progress then.", fromTypes + ", UpdateMachine; " + fromGuidelines + "Idempotence"}

	lawContentType = Law{"content-type", "Cluster API sends no Content-Type: without one the answer is the same as with application/json. Another one ends nothing.", fromClient + ", httpCall"}
	lawMoreFields  = Law{"more-of-a-request", "A request with a field that a later Cluster API may send is answered as the one without it, or with Failure.", "Kubernetes' API conventions: fields are added within a version"}
	lawBroken      = Law{"broken-body", "A body that is empty, cut off or no JSON is answered with an error, and never with Success, which replaces the machine. The next request is answered as before.", fromServer + ", callHandler"}
	lawDeep        = Law{"deep-body", "A body that nests 100,000 deep is answered with an error, or the connection ends. The next request is answered as before.", "Go's encoding/json, by which Cluster API reads and writes, ends at 10,000"}
	lawHuge        = Law{"huge-body", "A body of more than 20 MiB is answered with an error, or the connection ends. The next request is answered as before.", fromServer + ", maxExtensionRequestBodyBytes"}

	lawTimely   = Law{"timely", "An answer comes within the handler's timeoutSeconds.", fromClient + ", httpCall; " + fromGuidelines + "Timeouts"}
	lawResponse = Law{"response", "An answer has the HTTP status 200 and is a JSON object of the hook's response.", fromClient + ", httpCall"}
	lawSize     = Law{"answer-size", "An answer has no more than 1 MiB.", fromClient + ", httpCall reads an answer without a bound; an API server stores objects of 1.5 MiB"}
	lawStatus   = Law{"status", "The status is Success or Failure.", fromClient + ", validateResponseStatus"}
	lawWhy      = Law{"failure-message", "A Failure has a message.", fromBook}
	lawRetry    = Law{"retry-after", "retryAfterSeconds is in answers of UpdateMachine only, and there always: 0 is done. It is not negative, and 0 with Failure.", fromTypes + ", CommonRetryResponse, UpdateMachineResponse"}

	lawSecrets   = Law{"message-secrets", "No message has a bootstrap token, the content of a file or a password of the request in it.", fromGuidelines + "Error messages"}
	lawPrintable = Law{"message-printable", "Messages are UTF-8 without control characters, but for tabs and ends of lines.", "Messages are shown in conditions, logs and terminals"}
	lawBounded   = Law{"message-length", "A message has no more than 32,000 bytes, also when 200 files differ.", "metav1.Condition: a message has 32,768 at most, and Cluster API puts words before it"}
)

// laws are all of them, in the order in which they are looked at. Those about any answer come when all has been asked.
var laws = []struct {
	Law

	check check
}{
	{lawDiscovery, checkDiscovery},
	{lawNames, checkNames},
	{lawHooks, checkHooks},
	{lawFailurePolicy, checkFailurePolicy},
	{lawTimeout, checkTimeout},

	{lawPatchKind, checkPatches(lawPatchKind)},
	{lawPatchApplies, checkPatches(lawPatchApplies)},
	{lawPatchInside, checkPatches(lawPatchInside)},
	{lawPatchDiffers, checkPatches(lawPatchDiffers)},
	{lawPatchReaches, checkPatches(lawPatchReaches)},

	{lawDeterministic, checkDeterministic},
	{lawEqual, checkEqual},
	{lawIdempotent, checkIdempotent},
	{lawUnknownKind, checkUnknownKinds},
	{lawUnknownField, checkUnknownFields},
	{lawUpdateRepeats, checkUpdateRepeats},

	// What follows may end an extension.
	{lawMoreFields, checkMoreFields},
	{lawContentType, checkContentType},
	{lawBroken, checkBroken},
	{lawDeep, checkDeep},
	{lawHuge, checkHuge},

	{lawTimely, checkTimely},
	{lawResponse, checkResponse},
	{lawSize, checkSize},
	{lawStatus, checkStatus},
	{lawWhy, checkWhy},
	{lawRetry, checkRetry},
	{lawSecrets, checkSecrets},
	{lawPrintable, checkPrintable},
	{lawBounded, checkLength},
}

// Laws returns all laws, in the order of a report.
func Laws() []Law {
	all := make([]Law, 0, len(laws))
	for _, l := range laws {
		all = append(all, l.Law)
	}
	return all
}
