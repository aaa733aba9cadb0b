package lab

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// touchedAnnotation has no meaning but that it changes.
	touchedAnnotation = "capi-refit.dev/lab-touched"

	// reconciledMetric counts how often a manager took an ExtensionConfig into its registry.
	reconciledMetric = `controller_runtime_reconcile_total{controller="extensionconfig",result="success"}`
)

// WaitForExtension waits until both managers that call extensions know the one that the ExtensionConfig with this name
// describes. The Discovered condition does not say so: it is the core manager's, and the control-plane manager, which keeps
// a registry of its own, follows a second or two later. Until then it replaces machines without asking anybody.
func (l *Lab) WaitForExtension(ctx context.Context, name string) error {
	config := &runtimev1.ExtensionConfig{}
	err := l.poll(ctx, func(ctx context.Context) (bool, error) {
		err := l.Client.Get(ctx, client.ObjectKey{Name: name}, config)
		return meta.IsStatusConditionTrue(config.Status.Conditions, runtimev1.ExtensionConfigDiscoveredCondition), err
	})
	if err != nil {
		return fmt.Errorf("waiting for discovery of extension %s: %w", name, err)
	}
	// The managers don't show their registries. But what they reconcile without error from here on, they have registered.
	before := map[Program]string{}
	for _, program := range []Program{CoreManager, ControlPlaneManager} {
		if before[program], err = l.metric(ctx, program, reconciledMetric); err != nil {
			return err
		}
	}
	touched := config.DeepCopy()
	metav1.SetMetaDataAnnotation(&touched.ObjectMeta, touchedAnnotation, time.Now().Format(time.RFC3339Nano))
	if err := l.Client.Patch(ctx, touched, client.MergeFrom(config)); err != nil {
		return fmt.Errorf("touching extension %s: %w", name, err)
	}
	for program, count := range before {
		err := l.poll(ctx, func(ctx context.Context) (bool, error) {
			now, err := l.metric(ctx, program, reconciledMetric)
			return now != count, err
		})
		if err != nil {
			return fmt.Errorf("waiting for %s to register extension %s: %w", program, name, err)
		}
	}
	return nil
}

func (l *Lab) poll(ctx context.Context, condition wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, startTimeout, true, condition)
}

// metric returns the value of one of a manager's metrics, given with all its labels. It is empty until there is one.
func (l *Lab) metric(ctx context.Context, program Program, name string) (string, error) {
	url := "http://" + loopbackAddress(l.diagnostics[program]) + "/metrics"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("reading the metrics of %s: %w", program, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("reading the metrics of %s: %w", program, err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return value, nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("reading the metrics of %s: %w", program, err)
	}
	return "", nil
}
