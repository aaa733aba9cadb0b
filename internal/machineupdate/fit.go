package machineupdate

import (
	"slices"
	"unicode/utf8"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
)

// The limits of what is of any length, as the CustomResourceDefinition has them.
const (
	maxMessage    = 32768
	maxHint       = 4096
	maxStep       = 1024
	maxName       = 4096
	maxReason     = 64
	maxActions    = 100
	maxAction     = 512
	maxChanges    = 1000
	maxNotes      = 100
	maxConditions = 32
	maxDiffers    = 50
	maxPolicies   = 200
	maxRecords    = 2
	maxUpdaters   = 100
)

// Marks of what was cut.
const (
	leftOut = " … "
	andMore = "… and more"
)

// fit cuts what a status says to what an API server takes. An update whose status can't be written neither goes on nor shows why, and keeps
// lease and slot. What identifies something is not cut: it comes from objects with the same limits.
func fit(s *refitv1.MachineUpdateStatus) {
	s.Reason = s.Reason[:min(len(s.Reason), maxReason)]
	s.Step, s.Message = shorten(s.Step, maxStep), shorten(s.Message, maxMessage)
	s.ObservedRetry, s.ObservedAbandon = refitv1.Observed(s.ObservedRetry), refitv1.Observed(s.ObservedAbandon)
	s.Instance, s.Address = shorten(s.Instance, 256), shorten(s.Address, 512)
	if d := s.DelayedEnd; d != nil {
		d.Reason, d.Message = d.Reason[:min(len(d.Reason), maxReason)], shorten(d.Message, maxMessage)
	}
	s.WorstAction = shorten(s.WorstAction, 64)
	s.Actions, s.Notes = shortenAll(s.Actions, maxActions, maxAction), shortenAll(s.Notes, maxNotes, maxName)
	s.Starts = s.Starts[:min(len(s.Starts), changemanagement.StartsKept)]
	s.NodeRecords = s.NodeRecords[:min(len(s.NodeRecords), maxRecords)]
	s.Updaters = s.Updaters[:min(len(s.Updaters), maxUpdaters)] // no Machine has more
	for i := range s.Updaters {
		s.Updaters[i].Name, s.Updaters[i].Message = shorten(s.Updaters[i].Name, 63), shorten(s.Updaters[i].Message, 1024)
	}
	fitChanges(s)
	if p := s.Plan; p != nil {
		p.Actions = shortenAll(p.Actions, maxActions, maxAction)
		p.Kinds, p.Disruption, p.WorstAction = shortenAll(p.Kinds, 4, 64), shorten(p.Disruption, 64), shorten(p.WorstAction, 64)
	}
	if a := s.Admission; a != nil {
		a.Reason, a.Message = a.Reason[:min(len(a.Reason), maxReason)], shorten(a.Message, maxHint)
		a.Policies = shortenAll(a.Policies, maxPolicies, 253)
	}
	if d := s.Drain; d != nil {
		d.Blocked = shortenAll(d.Blocked, 10, 1024)
	}
	if d := s.Drift; d != nil {
		fitDrift(d)
	}
	if r := s.Rollback; r != nil {
		r.Request, r.Owner = refitv1.Observed(r.Request), shorten(r.Owner, 1024)
		r.Message, r.Warning = shorten(r.Message, maxMessage), shorten(r.Warning, maxHint)
	}
	fitConditions(s)
}

func fitChanges(s *refitv1.MachineUpdateStatus) {
	if len(s.Changes) > maxChanges {
		s.Changes = slices.Clone(s.Changes[:maxChanges])
		s.Changes[maxChanges-1].Name = andMore
	}
	for i := range s.Changes {
		c := &s.Changes[i]
		c.Kind, c.Operation, c.Name = shorten(c.Kind, 64), shorten(c.Operation, 32), shorten(c.Name, maxName)
	}
}

// fitDrift cuts the resources that have drifted. How many there are their total says.
func fitDrift(d *refitv1.DriftStatus) {
	d.ObservedCheck = refitv1.Observed(d.ObservedCheck)
	d.Resources = d.Resources[:min(len(d.Resources), refitv1.MaxDriftedResources)]
	for i := range d.Resources {
		r := &d.Resources[i]
		r.Kind, r.Name, r.What = shorten(r.Kind, 64), shorten(r.Name, maxName), shortenAll(r.What, maxDiffers, 512)
	}
}

func fitConditions(s *refitv1.MachineUpdateStatus) {
	s.Conditions = s.Conditions[:min(len(s.Conditions), maxConditions)]
	for i := range s.Conditions {
		s.Conditions[i].Message = conditionMessage(s.Conditions[i].Message)
	}
}

// conditionMessage returns a message as a condition has it.
func conditionMessage(message string) string { return shorten(message, maxMessage) }

// shorten cuts a text in the middle: how it ends tells what to do, or which file of a directory it is.
func shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	runes, tail := []rune(text), most/4
	head := most - tail - utf8.RuneCountInString(leftOut)
	return string(runes[:head]) + leftOut + string(runes[len(runes)-tail:])
}

// shortenAll cuts a list, whose last entry then tells that there are more, and each of its entries.
func shortenAll(list []string, most, each int) []string {
	long := func(text string) bool { return utf8.RuneCountInString(text) > each }
	if len(list) <= most && !slices.ContainsFunc(list, long) {
		return list
	}
	out := slices.Clone(list[:min(len(list), most)])
	if len(list) > most {
		out[most-1] = andMore
	}
	for i := range out {
		out[i] = shorten(out[i], each)
	}
	return out
}
