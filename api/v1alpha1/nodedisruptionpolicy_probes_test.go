package v1alpha1

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProbesAreValidated(t *testing.T) {
	definition := crd(t, ndpFile)
	probe := func(rest string) string { return `{probes: [{name: app, ` + rest + `}]}` }
	for name, test := range map[string]struct{ spec, want string }{
		"exec":             {probe(`exec: {command: [/usr/local/bin/check, "--all", ""]}, timeout: 5m, retries: 0`), ""},
		"a program's name": {probe(`exec: {command: [systemctl, is-active, a.service]}, retries: 10`), ""},
		"http":             {probe(`http: {url: "http://127.0.0.1:8080/healthz?deep=1"}`), ""},
		"https":            {probe(`http: {url: "https://[::1]:8443", caFile: /etc/app/ca.pem}, timeout: 500ms`), "timeout"},
		"https, verified":  {probe(`http: {url: "https://[::1]:8443", caFile: /etc/app/ca.pem}, timeout: 0.5s`), ""},
		"https, or not":    {probe(`http: {url: "https://localhost/", insecureSkipVerify: true}`), ""},
		"tcp":              {probe(`tcp: "127.0.0.1:5432"`), ""},
		"tcp of 6":         {probe(`tcp: "[::1]:5432"`), ""},
		"a unit":           {probe(`unit: app.service`), ""},
		"a condition":      {probe(`nodeCondition: {type: DiskPressure, status: "False"}`), ""},
		"20":               {`{probes: ` + many(20, `{name: p%d, unit: a.service}`) + `}`, ""},

		"nothing":                    {probe(`timeout: 1s`), "one of exec, http"},
		"two at once":                {probe(`tcp: "a:1", unit: a.service`), "and no more"},
		"no name":                    {`{probes: [{unit: a.service}]}`, "name: Required value"},
		"a name in capitals":         {`{probes: [{name: App, unit: a.service}]}`, "probes[0].name"},
		"a long name":                {`{probes: [{name: ` + strings.Repeat("a", 64) + `, unit: a.service}]}`, "Too long"},
		"a name twice":               {`{probes: [{name: a, unit: a.service}, {name: a, unit: b.service}]}`, "Duplicate value"},
		"21":                         {`{probes: ` + many(21, `{name: p%d, unit: a.service}`) + `}`, "Too many"},
		"no command":                 {probe(`exec: {command: []}`), "should have at least 1"},
		"an empty program":           {probe(`exec: {command: [""]}`), "an absolute path, or a name"},
		"a relative program":         {probe(`exec: {command: [bin/check]}`), "an absolute path, or a name"},
		"another scheme":             {probe(`http: {url: "ftp://127.0.0.1/"}`), "url"},
		"a login":                    {probe(`http: {url: "http://root:x@127.0.0.1/"}`), "url"},
		"a port alone":               {probe(`tcp: ":1"`), "tcp"},
		"no port":                    {probe(`tcp: localhost`), "tcp"},
		"a unit that is none":        {probe(`unit: app`), "unit"},
		"a status that is none":      {probe(`nodeCondition: {type: Ready, status: "Yes"}`), "status"},
		"a condition without status": {probe(`nodeCondition: {type: Ready}`), "status: Required value"},
		"no time":                    {probe(`unit: a.service, timeout: 0s`), "longer than nothing"},
		"more than five minutes":     {probe(`unit: a.service, timeout: 301s`), "at most 5m"},
		"fewer retries than none":    {probe(`unit: a.service, retries: -1`), "retries"},
		"eleven retries":             {probe(`unit: a.service, retries: 11`), "retries"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := admit(t, definition, "{apiVersion: capi-refit.dev/v1alpha1, kind: NodeDisruptionPolicy, metadata: {name: p}, spec: "+test.spec+"}")
			if test.want == "" {
				require.Empty(t, errs)
				return
			}
			require.ErrorContains(t, errs.ToAggregate(), test.want)
		})
	}
}
