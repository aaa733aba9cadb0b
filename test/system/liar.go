package system

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/webhook"
)

// A Lie is a way in which a Liar answers a hook.
type Lie string

// The lies. Those of the first part are about each hook, those of the second about CanUpdateMachine and CanUpdateMachineSet, and the last about
// UpdateMachine.
const (
	// Truth is none: it claims what it makes, and says done when it is.
	Truth Lie = ""
	// Slow has it answer long after anybody's timeout.
	Slow Lie = "it is slow"
	// Broken is the HTTP status 500, and Fails an answer of Failure.
	Broken Lie = "it is broken"
	Fails  Lie = "it fails"
	// Floods is an answer of 3 MiB, and AnotherHook one to a hook that was not called.
	Floods      Lie = "it floods"
	AnotherHook Lie = "it answers another hook"

	// AnotherObject is a patch of a Machine where a MachineSet was asked about, and the other way round.
	AnotherObject Lie = "it answers for another kind"
	// DoesNotApply is a claim whose patch can't be applied, OutsideOfSpec one of labels, and DoesNotDiffer one of a field that nobody changes.
	DoesNotApply  Lie = "its patch does not apply"
	OutsideOfSpec Lie = "it claims what is outside of spec"
	DoesNotDiffer Lie = "it claims what does not differ"
	// ChangesItsMind is a claim each second time, and none each other time.
	ChangesItsMind Lie = "it changes its mind"

	// GoesOn never says done, and DoneAtOnce says it without having done anything.
	GoesOn     Lie = "it never ends"
	DoneAtOnce Lie = "it says done at once"
)

// Liar is a fake of a runtime extension that makes failure domains in place, and lies about it as it is told while it runs. It answers over TLS, and only
// whoever shows refit's certificate. What it has made of a Machine is in its memory alone.
type Liar struct {
	address string
	bundle  []byte
	config  *tls.Config
	client  string // the Secret with the certificate that refit shows

	mu     sync.Mutex
	server *http.Server
	served chan struct{}
	claims Lie
	works  map[string]Lie // by Machine; "" is all others
	asked  int
	began  map[string]time.Time // by Machine: since when it is at work
	made   map[string]string    // by Machine: its failure domain
}

// StartLiar starts one whose certificate is in a directory. It tells the truth until it is told otherwise. Whoever starts it closes it.
func (s *System) StartLiar(ctx context.Context, dir string) (*Liar, error) {
	bundle, err := webhook.WriteSelfSigned(dir, []string{"127.0.0.1"}, time.Now())
	if err != nil {
		return nil, err
	}
	serving, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, err
	}
	cert, key, err := s.clients.sign("refit")
	if err != nil {
		return nil, err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: leaderNamespace, GenerateName: "liar-"}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}}
	if err := s.Client.Create(ctx, secret); err != nil {
		return nil, err
	}
	l := &Liar{bundle: bundle, client: secret.Name, address: "127.0.0.1:0", works: map[string]Lie{}, made: map[string]string{}, config: &tls.Config{
		Certificates: []tls.Certificate{serving}, ClientCAs: x509.NewCertPool(), ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}}
	authority, err := os.ReadFile(s.clients.file)
	if err != nil {
		return nil, err
	}
	l.config.ClientCAs.AppendCertsFromPEM(authority)
	return l, l.Start()
}

// Registration has it be an updater.
func (l *Liar) Registration() *refitv1.UpdaterRegistration {
	u := &refitv1.UpdaterRegistration{ObjectMeta: metav1.ObjectMeta{Name: "liar"}}
	u.Spec.ClientConfig = refitv1.UpdaterClientConfig{
		URL: "https://" + l.address, CABundle: l.bundle, ClientCertificate: &refitv1.UpdaterSecret{Name: l.client},
	}
	u.Spec.TimeoutSeconds, u.Spec.Disturbs = 2, refitv1.UpdaterDisturbsNone
	return u
}

// Start starts it again after it was stopped, at the same address. What it was at work on it has forgotten.
func (l *Liar) Start() error {
	listener, err := net.Listen("tcp", l.address)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.address, l.began = listener.Addr().String(), map[string]time.Time{}
	server, served := &http.Server{Handler: http.HandlerFunc(l.serve), TLSConfig: l.config.Clone(), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}, make(chan struct{})
	l.server, l.served = server, served
	go func() {
		defer close(served)
		_ = server.ServeTLS(listener, "", "") // it ends when it is stopped
	}()
	return nil
}

// Stop ends it, and whatever it is being asked.
func (l *Liar) Stop() error {
	l.mu.Lock()
	server, served := l.server, l.served
	l.mu.Unlock()
	err := server.Close()
	<-served
	return err
}

// Claim has it answer CanUpdateMachine and CanUpdateMachineSet by a lie from now on.
func (l *Liar) Claim(lie Lie) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claims, l.asked = lie, 0
}

// Work has it answer UpdateMachine by a lie from now on: for a Machine, or where none is named for all that have no lie of their own.
func (l *Liar) Work(lie Lie, machine string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.works[machine] = lie
}

// Confess has it tell the truth about everything.
func (l *Liar) Confess() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claims, l.works = Truth, map[string]Lie{}
}

// Made returns the failure domain to which it has brought a Machine, whatever it has said.
func (l *Liar) Made(machine string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made[machine]
}

func (l *Liar) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 20<<20))
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/hooks.runtime.cluster.x-k8s.io/v1alpha1/"), "/")
	if err != nil || r.Method != http.MethodPost {
		http.Error(w, "it can't be read", http.StatusBadRequest)
		return
	}
	answer, lie := l.answer(path[0], body)
	switch lie {
	case Slow:
		select {
		case <-r.Context().Done():
		case <-time.After(time.Minute):
		}
	case Broken:
		http.Error(w, "it is broken", http.StatusInternalServerError)
	case Floods:
		_, err = io.WriteString(w, strings.Repeat(" ", 3<<20))
	default:
		_, err = w.Write(answer)
	}
	_ = err // whoever has asked is gone
}
