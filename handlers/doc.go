// Package handlers answers Cluster API's in-place update hooks: it decodes a request, has it decided, and encodes the
// response. It is the only package that knows the hooks' types.
//
// CanUpdateMachine and CanUpdateMachineSet share one engine. It works on the raw JSON of the request, because decoding
// into Go types would drop the fields of a newer API unseen. A body that can't be judged is answered with Failure, which
// Cluster API takes as "neither now": an empty or partial answer would have it replace machines.
package handlers
