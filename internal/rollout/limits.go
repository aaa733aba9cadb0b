package rollout

import "k8s.io/apimachinery/pkg/util/intstr"

// Limits bound how many machines of a MachineDeployment come and go at once.
type Limits struct {
	// Surge is how many there may be beyond the replicas, and Unavailable how many of these may be out.
	Surge, Unavailable int
}

// LimitsOf resolves the settings of a MachineDeployment as Cluster API does: where both come out as 0, one machine is taken at a time.
func LimitsOf(surge, unavailable *intstr.IntOrString, replicas int) Limits {
	l := Limits{Surge: Scaled(surge, replicas, 1, true), Unavailable: min(Scaled(unavailable, replicas, 0, false), replicas)}
	if l.Surge == 0 && l.Unavailable == 0 && replicas > 0 {
		l.Unavailable = 1
	}
	return l
}

// InPlace is how many machines are updated in place at once: at least one.
func (l Limits) InPlace() int { return max(1, l.Unavailable) }

// Replaced is how many machines are replaced at once: at least one.
func (l Limits) Replaced() int { return max(1, l.Unavailable+l.Surge) }

// Surges reports whether a rollout makes a machine more, for which an old one is deleted in the end, also where all others are updated in place: Cluster
// API does so where no machine may be unavailable.
func (l Limits) Surges() bool { return l.Unavailable == 0 && l.Surge > 0 }

// Scaled resolves a number or a percentage of replicas as Cluster API does: what is to surge is rounded up, and what is to be unavailable down. What is
// not set, or can't be read, counts as the preset.
func Scaled(setting *intstr.IntOrString, replicas, preset int, up bool) int {
	if setting == nil {
		return preset
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(setting, replicas, up)
	if err != nil || n < 0 {
		return preset
	}
	return n
}

// Setting reads a number or a percentage out of decoded JSON. Nil: there is none.
func Setting(value any) *intstr.IntOrString {
	switch v := value.(type) {
	case int64:
		out := intstr.FromInt32(int32(v))
		return &out
	case float64: // of a decoder that knows no whole numbers
		out := intstr.FromInt32(int32(v))
		return &out
	case string:
		out := intstr.Parse(v)
		return &out
	}
	return nil
}

// ControlPlaneSurges reports whether a rollout of a KubeadmControlPlane makes a machine more, for which an old one is deleted in the end, whatever can
// be made in place. It does unless maxSurge is 0: the default is 1.
func ControlPlaneSurges(maxSurge *intstr.IntOrString) bool {
	return maxSurge == nil || maxSurge.IntValue() != 0
}
