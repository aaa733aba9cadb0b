package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/capi-refit/refit/test/process"
)

// startTimeout is what each program gets to become healthy, and to end. They take seconds; a busy machine may take longer.
const startTimeout = 2 * time.Minute

// Options say how to start a Server.
type Options struct {
	// Etcd and KubeAPIServer are the paths of the programs. Etcd is not needed with Beside.
	Etcd, KubeAPIServer string
	// Beside is a Server whose etcd this one uses too, under a prefix made of its name. It must live longer. An etcd of one's own
	// takes more memory and another second.
	Beside *Server
	// Name tells servers in one Dir apart. It is part of the names of directories, logs and keys; without one there is one server.
	Name string
	// Dir is for data and certificates, which Stop removes. Empty: a temporary directory.
	Dir string
	// LogDir is for etcd.log and kube-apiserver.log, preceded by the name if there is one. Empty: Dir.
	LogDir string
	// Env is further environment of the programs.
	Env []string
	// Launcher starts the programs, which end with it. Nil: one that Stop closes.
	Launcher *process.Launcher
}

// A Server is a running API server.
type Server struct {
	// Config reaches it as an administrator, and Kubeconfig says the same.
	Config     *rest.Config
	Kubeconfig []byte

	options Options
	plane   envtest.ControlPlane
	etcd    *url.URL
	undo    []func() error // what Stop does, last first
}

// Start starts a server and returns when it is healthy. It lives until Stop, or until this process ends, however that happens.
// When Start fails it leaves nothing behind but logs, if LogDir says where.
func Start(ctx context.Context, o Options) (*Server, error) {
	s := &Server{options: o}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Stop ends the server and its etcd, and removes their data. It may be called any number of times.
func (s *Server) Stop() error {
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i]())
	}
	s.undo = nil
	return errors.Join(errs...)
}

// KubeconfigFor returns a kubeconfig of a user with nothing but the rights that RBAC gives to the name and the groups.
func (s *Server) KubeconfigFor(user string, groups ...string) ([]byte, error) {
	added, err := s.plane.AddUser(envtest.User{Name: user, Groups: groups}, nil)
	if err != nil {
		return nil, fmt.Errorf("adding user %s: %w", user, err)
	}
	return added.KubeConfig()
}

func (s *Server) start(ctx context.Context) error {
	if err := s.prepare(); err != nil {
		return err
	}
	if err := s.startEtcd(); err != nil {
		return err
	}
	if err := s.startAPIServer(); err != nil {
		return err
	}
	if err := s.addAdmin(); err != nil {
		return err
	}
	return s.awaitNamespaces(ctx)
}

// prepare makes what Options leave out.
func (s *Server) prepare() error {
	if s.options.Dir == "" {
		dir, err := os.MkdirTemp("", "refit-apiserver-")
		if err != nil {
			return fmt.Errorf("making the API server's directory: %w", err)
		}
		s.options.Dir = dir
		s.onStop(func() error { return os.RemoveAll(dir) })
	}
	if s.options.LogDir == "" {
		s.options.LogDir = s.options.Dir
	}
	if s.options.Launcher == nil {
		s.options.Launcher = process.NewLauncher()
		s.onStop(func() error { s.options.Launcher.Close(); return nil })
	}
	return nil
}

func (s *Server) startEtcd() error {
	if s.options.Beside != nil {
		s.etcd = s.options.Beside.etcd
		return nil
	}
	p, err := s.program("etcd", s.options.Etcd)
	if err != nil {
		return err
	}
	etcd := &envtest.Etcd{Path: p.path, DataDir: p.dir, Out: p.log, Err: p.log, StartTimeout: startTimeout, StopTimeout: startTimeout}
	// Nothing here outlives the server, so nothing has to reach the disk.
	etcd.Configure().Enable("unsafe-no-fsync")
	if err := s.run(p, etcd.Start, etcd.Stop); err != nil {
		return err
	}
	s.etcd = etcd.URL
	return nil
}

func (s *Server) startAPIServer() error {
	p, err := s.program("kube-apiserver", s.options.KubeAPIServer)
	if err != nil {
		return err
	}
	server := s.plane.GetAPIServer()
	server.Path, server.CertDir, server.Out, server.Err = p.path, p.dir, p.log, p.log
	server.EtcdURL, server.StartTimeout, server.StopTimeout = s.etcd, startTimeout, startTimeout
	server.Configure().Append("disable-admission-plugins", "TaintNodesByCondition")
	if s.options.Beside != nil {
		server.Configure().Set("etcd-prefix", "/"+s.named("registry"))
	}
	return s.run(p, server.Start, server.Stop)
}

func (s *Server) addAdmin() error {
	user := envtest.User{Name: "admin", Groups: []string{"system:masters"}}
	// client-go's own limits are for servers that are shared.
	admin, err := s.plane.AddUser(user, &rest.Config{QPS: 1000, Burst: 2000})
	if err != nil {
		return fmt.Errorf("adding the administrator: %w", err)
	}
	s.Config = admin.Config()
	s.Kubeconfig, err = admin.KubeConfig()
	return err
}

// awaitNamespaces waits for the API server's own namespaces, which a healthy one may not have made yet.
func (s *Server) awaitNamespaces(ctx context.Context) error {
	c, err := client.New(s.Config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, name := range []string{corev1.NamespaceDefault, metav1.NamespaceSystem, corev1.NamespaceNodeLease} {
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
			return c.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}) == nil, nil
		})
		if err != nil {
			return fmt.Errorf("waiting for Namespace %s: %w", name, err)
		}
	}
	return nil
}

// A program is what has to be known of one before it is started.
type program struct {
	name, path, dir string
	log             *os.File
}

// program returns what is needed to start path: an empty directory, an open log, and a path that ends with this process.
func (s *Server) program(name, path string) (*program, error) {
	p := &program{name: name, dir: filepath.Join(s.options.Dir, s.named(name))}
	// What an earlier server left here would not go together with this one's certificates.
	if err := os.RemoveAll(p.dir); err != nil {
		return nil, fmt.Errorf("clearing %s's directory: %w", name, err)
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making %s's directory: %w", name, err)
	}
	s.onStop(func() error { return os.RemoveAll(p.dir) })

	standIn := filepath.Join(s.options.Dir, s.named("start-"+name))
	s.onStop(func() error { return os.RemoveAll(standIn) })
	var err error
	if p.path, err = process.Leashed(path, standIn, s.options.Env...); err != nil {
		return nil, err
	}
	if p.log, err = os.Create(filepath.Join(s.options.LogDir, s.named(name)+".log")); err != nil {
		return nil, fmt.Errorf("opening %s's log: %w", name, err)
	}
	s.onStop(p.log.Close)
	return p, nil
}

// run starts a program on the launcher's thread.
func (s *Server) run(p *program, start, stop func() error) error {
	s.onStop(stop)
	if err := s.options.Launcher.Do(start); err != nil {
		log := p.log.Name()
		return fmt.Errorf("starting %s: %w; its log, %s, ends with:\n%s", p.name, err, log, process.Tail(log, 15))
	}
	return nil
}

func (s *Server) named(what string) string {
	if s.options.Name == "" {
		return what
	}
	return s.options.Name + "-" + what
}

func (s *Server) onStop(f func() error) { s.undo = append(s.undo, f) }
