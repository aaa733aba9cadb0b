package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/test/apiserver"
)

// start starts the program of the Pod's container, once all that it mounts is there.
func (p *podRun) start(ctx context.Context, pod *corev1.Pod) error {
	if len(pod.Spec.Containers) != 1 || len(pod.Spec.InitContainers) > 0 {
		return errContainers
	}
	k, container := p.kubelet, pod.Spec.Containers[0]
	dir := filepath.Join(k.Dir, pod.Name)
	volumes, err := p.volumes(ctx, pod, dir)
	if err != nil {
		return err
	}
	account, err := apiserver.AccountKubeconfig(ctx, k.Admin, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName})
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, account, 0o600); err != nil {
		return err
	}
	env, err := environment(pod, container)
	if err != nil {
		return err
	}
	if p.address == "" {
		p.address = k.address()
	}
	p.grace, p.starts = time.Duration(*cmp.Or(pod.Spec.TerminationGracePeriodSeconds, new(int64(30))))*time.Second, p.starts+1
	args := append(mounted(container, volumes),
		"--kubeconfig="+kubeconfig, "--leader-elect-namespace="+pod.Namespace, "--agent-dir="+filepath.Join(k.BinDir, "agents"),
		"--webhook-host="+p.address, "--health-addr="+p.at(container, "health"), "--diagnostics-address="+p.at(container, "metrics"))
	p.say("starting %s/%s, of image %s, at %s", pod.Namespace, pod.Name, container.Image, p.address)
	p.process, err = k.launcher.Start(pod.Name, filepath.Join(k.Dir, fmt.Sprintf("%s.%d.log", pod.Name, p.starts)), filepath.Join(k.BinDir, "refit"), args, env)
	return err
}

// volumes writes what the Pod's volumes have, and returns their directories by name.
func (p *podRun) volumes(ctx context.Context, pod *corev1.Pod, dir string) (map[string]string, error) {
	dirs := map[string]string{}
	for _, v := range pod.Spec.Volumes {
		at := filepath.Join(dir, "volumes", v.Name)
		if err := os.MkdirAll(at, 0o700); err != nil {
			return nil, err
		}
		dirs[v.Name] = at
		switch {
		case v.EmptyDir != nil:
		case v.Secret != nil:
			var secret corev1.Secret
			if err := p.kubelet.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: v.Secret.SecretName}, &secret); err != nil {
				return nil, fmt.Errorf("volume %s: %w", v.Name, err)
			}
			for name, data := range secret.Data {
				if err := os.WriteFile(filepath.Join(at, name), data, 0o600); err != nil {
					return nil, err
				}
			}
		default:
			return nil, fmt.Errorf("volume %s is neither a Secret nor an emptyDir", v.Name)
		}
	}
	return dirs, nil
}

// mounted returns the container's arguments, with the directories of volumes in the place of where they are mounted.
func mounted(container corev1.Container, volumes map[string]string) []string {
	args := slices.Clone(container.Args)
	for i, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		for _, m := range container.VolumeMounts {
			if rest, in := strings.CutPrefix(value, m.MountPath); ok && in && (rest == "" || rest[0] == '/') {
				args[i] = name + "=" + volumes[m.Name] + rest
			}
		}
	}
	return args
}

// environment returns the container's, and nothing of this process's own.
func environment(pod *corev1.Pod, container corev1.Container) ([]string, error) {
	fields := map[string]string{"metadata.namespace": pod.Namespace, "metadata.name": pod.Name}
	var env []string
	for _, e := range container.Env {
		value := e.Value
		if e.ValueFrom != nil {
			if e.ValueFrom.FieldRef == nil || fields[e.ValueFrom.FieldRef.FieldPath] == "" {
				return nil, fmt.Errorf("the environment variable %s has a source that is not known here", e.Name)
			}
			value = fields[e.ValueFrom.FieldRef.FieldPath]
		}
		env = append(env, e.Name+"="+value)
	}
	return env, nil
}

// at returns the address of one of the container's ports.
func (p *podRun) at(container corev1.Container, port string) string {
	for _, c := range container.Ports {
		if c.Name == port {
			return net.JoinHostPort(p.address, strconv.Itoa(int(c.ContainerPort)))
		}
	}
	return ""
}

// ready asks what the readiness probe asks.
func (p *podRun) ready(ctx context.Context, pod *corev1.Pod) bool {
	container := pod.Spec.Containers[0]
	probe := container.ReadinessProbe.HTTPGet
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return get(ctx, "http://"+p.at(container, probe.Port.String())+probe.Path) == nil
}

func get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", url, response.Status)
	}
	return errors.Join(err, response.Body.Close())
}
