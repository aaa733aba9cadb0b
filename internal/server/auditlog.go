package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capi-refit/refit/internal/audit"
	"github.com/capi-refit/refit/internal/audit/heads"
)

// auditFlags say where the audit log is kept, and its heads.
type auditFlags struct {
	file      string
	namespace string
}

func (f *auditFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.file, "audit-log", "", "File to record each command in that is sent to a node; what can't be recorded is not sent. Each line has the hash of the one before it, see refit audit verify. A file that is full is kept beside it, or the last N of them with ,keep=N behind the name. Unset: none is kept.")
	fs.StringVar(&f.namespace, "audit-namespace", "", "Namespace of the ConfigMap with the signed heads of audit logs, and of the Secret with the key. Unset: the one that refit runs in, by the environment variable POD_NAMESPACE; without that no heads are published.")
}

// keeps is what may be behind the name of the file.
var keeps = regexp.MustCompile(`^(.+),keep=([0-9]{1,6})$`)

// fileAndKeep returns the name of the file, and how many before it are kept. It is said with the name, so that who names another file
// keeps all of them.
func (f *auditFlags) fileAndKeep() (string, int, error) {
	m := keeps.FindStringSubmatch(f.file)
	if m == nil {
		return f.file, 0, nil
	}
	keep, err := strconv.Atoi(m[2])
	if err != nil || keep < 1 {
		return "", 0, fmt.Errorf("--audit-log: keep=%s: at least one file has to be kept; leave it out to keep all", m[2])
	}
	return m[1], keep, nil
}

// open opens the log, and has its heads published. It returns nil if none is to be kept.
func (f *auditFlags) open(ctx context.Context, mgr ctrl.Manager, instance string) (*audit.Log, error) {
	logger := ctrl.Log.WithName("audit")
	if f.file == "" {
		logger.Info("No audit log is kept of what is sent to nodes: --audit-log names no file")
		return nil, nil
	}
	file, keep, err := f.fileAndKeep()
	if err != nil {
		return nil, err
	}
	log, err := audit.Open(file, clock.RealClock{}, audit.Options{Instance: instance, Keep: keep, Logger: logger})
	if err != nil {
		return nil, fmt.Errorf("--audit-log: %w", err)
	}
	namespace := cmp.Or(f.namespace, os.Getenv("POD_NAMESPACE"))
	if namespace == "" {
		logger.Info("No heads of the audit log are published: it is not known in which namespace; say it with --audit-namespace")
		return log, nil
	}
	name, err := logName(file)
	if err != nil {
		return nil, err
	}
	publisher := &heads.Publisher{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: namespace, Log: name, Audit: log, Clock: clock.RealClock{},
		Logger: logger, Recorder: mgr.GetEventRecorder("refit"),
	}
	publisher.Prepare(ctx)
	metrics.Registry.MustRegister(publisher)
	return log, mgr.Add(publisher)
}

// logName names the log: after its pod, which has one, or after host and file.
func logName(file string) (string, error) {
	if pod := os.Getenv("POD_NAME"); pod != "" {
		return pod, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	at, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(at))
	return host + "-" + hex.EncodeToString(sum[:4]), nil
}
