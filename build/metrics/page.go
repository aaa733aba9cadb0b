package metrics

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

const made = "<!-- Made by make reference. -->\n\n"

// Page returns the page about all metrics of the source in a checkout, in Markdown.
func Page(root string) (string, error) {
	all, err := Read(root)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(made + `# Metrics

All that refit serves of its own, at the port of ` + "`--diagnostics-address`" + `. Beside them are those of Go and of controller-runtime, such as
` + "`workqueue_depth`" + ` and ` + "`rest_client_requests_total`" + `. What values mean, and what to do about them, is told where they belong: [updates and refit itself](../troubleshooting.md#metrics),
[policies](../policies.md#metrics), [boot images](../boot-images.md), [drift](../drift.md), [the guard](../guard.md). [Alerts](alerts.md) look at some of them.

| metric | type | labels | meaning |
|---|---|---|---|
`)
	for _, m := range all {
		var labels []string
		for _, l := range m.Labels {
			labels = append(labels, "`"+l+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, strings.Join(labels, ", "), cell(m.Help))
	}
	return b.String(), nil
}

// cell returns a text as it is in a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(strings.TrimSpace(text))
}

// alert is a rule of config/prometheus.
type alert struct {
	Alert               string
	For                 string
	Labels, Annotations map[string]string
}

const pages = "https://github.com/capi-refit/refit/blob/main/docs/"

// AlertsPage returns the page about all alerts of config/prometheus in a checkout, in Markdown.
func AlertsPage(root string) (string, error) {
	data, err := os.ReadFile(filepath.Join(root, "config", "prometheus", "rules.yaml"))
	if err != nil {
		return "", err
	}
	var rules struct {
		Spec struct {
			Groups []struct{ Rules []alert }
		}
	}
	if err := yaml.Unmarshal(data, &rules); err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(made + `# Alerts

Those of [config/prometheus](../../config/prometheus/rules.yaml), which Helm's ` + "`prometheus.rules.enabled`" + ` installs, too. *For* is how long it has to be so before anybody is told. Each
leads to what it means and what to do. [Metrics](metrics.md) has what they look at.

| alert | severity | for | it says |
|---|---|---|---|
`)
	for _, g := range rules.Spec.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			runbook, ours := strings.CutPrefix(r.Annotations["runbook_url"], pages)
			if !ours {
				return "", fmt.Errorf("the alert %s has no runbook in docs", r.Alert)
			}
			fmt.Fprintf(&b, "| [%s](../%s) | %s | %s | %s |\n", r.Alert, runbook, r.Labels["severity"], cmp.Or(r.For, "at once"), cell(r.Annotations["summary"]))
		}
	}
	return b.String(), nil
}
