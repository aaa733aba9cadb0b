package conformance

import (
	"context"
	"net/http"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

func checkTimely(_ context.Context, r *run, v *verdict) {
	for _, x := range r.asked {
		v.saw("answers")
		if x.late {
			v.broken("%s: %s", x, x.what())
		}
	}
}

func checkResponse(_ context.Context, r *run, v *verdict) {
	for _, x := range r.asked {
		if x.late || x.large {
			continue // there are laws for that
		}
		v.saw("answers")
		switch {
		case x.err != nil, x.unread != nil:
			v.broken("%s: %s", x, quote(x.what()))
		case x.code != http.StatusOK:
			v.broken("%s: %s, with %s", x, x.what(), quote(string(x.body)))
		}
	}
}

func checkSize(_ context.Context, r *run, v *verdict) {
	for _, all := range [][]*exchange{r.asked, r.hostile} {
		for _, x := range all {
			v.saw("answers")
			if x.large {
				v.broken("%s: %s", x, x.what())
			}
		}
	}
}

// read returns the answers to what Cluster API might send that could be read.
func (r *run) read() []*exchange {
	var all []*exchange
	for _, x := range r.asked {
		if x.answer != nil {
			all = append(all, x)
		}
	}
	return all
}

func checkStatus(_ context.Context, r *run, v *verdict) {
	for _, x := range r.read() {
		v.saw("answers")
		if !x.success() && x.status != runtimehooksv1.ResponseStatusFailure {
			v.broken("%s: the status is %s", x, quote(string(x.status)))
		}
	}
}

func checkWhy(_ context.Context, r *run, v *verdict) {
	v.skip("nothing was answered with Failure")
	for _, all := range [][]*exchange{r.asked, r.hostile} {
		for _, x := range all {
			if x.answer == nil || x.status != runtimehooksv1.ResponseStatusFailure {
				continue
			}
			v.saw("answers with Failure")
			if x.message == "" {
				v.broken("%s: the status is Failure, and there is no message", x)
			}
		}
	}
}

func checkRetry(_ context.Context, r *run, v *verdict) {
	for _, x := range r.read() {
		v.saw("answers")
		switch {
		case x.request.hook != updateMachine:
			if x.retry != nil {
				v.broken("%s: retryAfterSeconds is %d, and Cluster API does not look at it in this hook", x, *x.retry)
			}
		case x.retry == nil:
			v.broken("%s: there is no retryAfterSeconds, so that the update is done", x)
		case *x.retry < 0:
			v.broken("%s: retryAfterSeconds is %d", x, *x.retry)
		case !x.success() && *x.retry != 0:
			v.broken("%s: retryAfterSeconds is %d, and the status %s", x, *x.retry, quote(string(x.status)))
		}
	}
}
