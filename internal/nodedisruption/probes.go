package nodedisruption

import (
	"fmt"
	"time"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/schedule"
)

// mostProbes is how many a policy may have.
const mostProbes = 20

// probes reads what a policy asks of nodes.
func (c *converter) probes(list []refitv1.NodeProbe) []disruption.Probe {
	if len(list) > mostProbes {
		c.wrong("probes", fmt.Errorf("it has %d entries, of which %d are allowed", len(list), mostProbes))
	}
	seen := map[string]bool{}
	var out []disruption.Probe
	for i := range list {
		p := &list[i]
		field := fmt.Sprintf("probes[%s]", p.Name)
		c.once(field, seen)
		read := disruption.Probe{
			Name: p.Name, TCP: p.TCP, Unit: p.Unit,
			Timeout: c.probeTimeout(field+".timeout", p.Timeout), Retries: disruption.DefaultProbeRetries,
		}
		if p.Exec != nil {
			read.Exec = append([]string{}, p.Exec.Command...)
		}
		if p.HTTP != nil {
			read.HTTP = &disruption.HTTPProbe{URL: p.HTTP.URL, CAFile: p.HTTP.CAFile, InsecureSkipVerify: p.HTTP.InsecureSkipVerify}
		}
		if p.NodeCondition != nil {
			read.Condition = &disruption.ConditionProbe{Type: p.NodeCondition.Type, Status: string(p.NodeCondition.Status)}
		}
		if p.Retries != nil {
			read.Retries = int(*p.Retries)
		}
		c.wrong(field, read.Validate())
		out = append(out, read)
	}
	return out
}

// probeTimeout reads how long a try may take. One that can't be read is the default, beside the error.
func (c *converter) probeTimeout(field string, value refitv1.ProbeTimeout) time.Duration {
	if value == "" {
		return disruption.DefaultProbeTimeout
	}
	d, err := schedule.ParseDuration(string(value))
	if err != nil {
		c.wrong(field, err)
		return disruption.DefaultProbeTimeout
	}
	return d // whose bounds Validate looks at
}
