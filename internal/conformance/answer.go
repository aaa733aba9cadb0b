package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/jsonscan"
)

// answer is a response as far as it can be read.
type answer struct {
	status  runtimehooksv1.ResponseStatus
	message string
	patches map[string]runtimehooksv1.Patch // by the field of the object; only those that are defined
	retry   *int32                          // nil when it is left out
}

func (a *answer) success() bool { return a.status == runtimehooksv1.ResponseStatusSuccess }

// readAnswer reads a response of a hook.
func readAnswer(hook string, body []byte) (*answer, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("it is not UTF-8")
	}
	if err := jsonscan.Check(body); err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	a := &answer{patches: map[string]runtimehooksv1.Patch{}}
	errs := []error{readField(fields, "status", &a.status), readField(fields, "message", &a.message), readField(fields, "retryAfterSeconds", &a.retry)}
	for _, m := range members[hook] {
		var p runtimehooksv1.Patch
		errs = append(errs, readField(fields, m.field+"Patch", &p))
		if p.IsDefined() {
			a.patches[m.field] = p
		}
	}
	return a, errors.Join(errs...)
}

func readField(fields map[string]json.RawMessage, name string, into any) error {
	raw, ok := fields[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("the field %s: %w", name, err)
	}
	return nil
}

// exchange is a request and what came back.
type exchange struct {
	handler *handler
	request Request
	reply

	*answer // nil when there is none, or it can't be read

	unread error // why it can't be read
}

func newExchange(h *handler, r Request, p reply) *exchange {
	x := &exchange{handler: h, request: r, reply: p}
	if p.err != nil || p.large || p.code != http.StatusOK {
		return x
	}
	a, err := readAnswer(r.hook, p.body)
	if err != nil {
		x.unread = err
		return x
	}
	x.answer = a
	return x
}

// String names the exchange where it is evidence.
func (x *exchange) String() string {
	if x.handler.Name == "" {
		return x.request.name
	}
	return x.handler.Name + ", " + x.request.name
}

// succeeded reports whether the answer is there and says Success.
func (x *exchange) succeeded() bool { return x != nil && x.answer != nil && x.success() }

// what says in a few words what came back.
func (x *exchange) what() string {
	switch {
	case x.late:
		return "nothing within " + x.handler.timeout().String()
	case x.err != nil:
		return "the connection ended: " + x.err.Error()
	case x.large:
		return fmt.Sprintf("more than %d bytes", maxAnswer)
	case x.code != http.StatusOK:
		return fmt.Sprintf("the HTTP status %d", x.code)
	case x.unread != nil:
		return "what can't be read: " + x.unread.Error()
	default:
		return fmt.Sprintf("%q", x.status)
	}
}

// spoken is what Cluster API would show of the answer: the message, and of another HTTP status than 200 the body.
func (x *exchange) spoken() string {
	switch {
	case x.answer != nil:
		return x.message
	case x.code != http.StatusOK:
		return string(x.body)
	default:
		return ""
	}
}

// differs says what of two answers to the same request is not the same; empty if they are.
func (x *exchange) differs(y *exchange) string {
	switch {
	case x.answer == nil || y.answer == nil:
		if x.what() != y.what() {
			return fmt.Sprintf("%s, and then %s", x.what(), y.what())
		}
		return ""
	case x.status != y.status:
		return fmt.Sprintf("the status %q, and then %q", x.status, y.status)
	case x.message != y.message:
		return fmt.Sprintf("the message %s, and then %s", quote(x.message), quote(y.message))
	case !slices.Equal(patched(x), patched(y)):
		return fmt.Sprintf("patches of %v, and then of %v", patched(x), patched(y))
	}
	for _, m := range members[x.request.hook] {
		p, other := x.patches[m.field], y.patches[m.field]
		if (p.PatchType != other.PatchType || !sameJSON(p.Patch, other.Patch)) && !x.sameMade(m, p, other) {
			return fmt.Sprintf("two patches of %s that don't make the same", m.field)
		}
	}
	return ""
}

// sameMade reports whether two patches make the same of the current object: in which order their operations are is nothing that Cluster API sees.
func (x *exchange) sameMade(m member, patches ...runtimehooksv1.Patch) bool {
	current, err := x.request.objects("current")
	if err != nil {
		return false
	}
	var made []map[string]any
	for _, p := range patches {
		c := &claim{member: m, patch: p, raw: current[m.field]}
		if kindProblem(p) != "" || c.apply() != nil {
			return false
		}
		made = append(made, c.after)
	}
	return reflect.DeepEqual(made[0], made[1])
}

// patched are the fields that have patches, in order.
func patched(x *exchange) []string {
	var fields []string
	for _, m := range members[x.request.hook] {
		if _, ok := x.patches[m.field]; ok {
			fields = append(fields, m.field)
		}
	}
	return fields
}

func sameJSON(a, b []byte) bool {
	if string(a) == string(b) {
		return true
	}
	x, errX := fieldset.Decode(a)
	y, errY := fieldset.Decode(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

// maxQuoted is how much of a text that the extension has written is shown, in bytes.
const maxQuoted = 200

// quote shows a text that the extension has written.
func quote(text string) string {
	if len(text) <= maxQuoted {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q… (%d bytes)", strings.ToValidUTF8(text[:maxQuoted], ""), len(text))
}
