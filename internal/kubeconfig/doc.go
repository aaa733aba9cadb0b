// Package kubeconfig reads kubeconfigs out of Secrets.
//
// Whoever may write the Secret must gain nothing in the process that reads it. So a kubeconfig may name no program and no file, which
// the process would run or read with its own rights, and no server that is not verified, which would be shown credentials.
package kubeconfig
