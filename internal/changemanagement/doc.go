// Package changemanagement decides, by the ChangeManagementPolicies that select a Machine, when it may be disturbed.
//
// Policies holds them as they were read last, on every replica. Gate asks them before an update starts on a node, Hooks before
// an answer commits Cluster API to something. Status shows what they mean now.
//
// In order: an invalid policy is closed; a bypass opens for one change; permissive-until opens and restrictive-until closes
// for a while; otherwise all policies must be open for long enough, then comes the jitter of the window, then their budgets.
// What has started is never held back.
package changemanagement
