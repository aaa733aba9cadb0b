package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/capi-refit/refit/internal/check"
	"github.com/capi-refit/refit/internal/printer"
)

type versionFlags struct {
	managementFlags
	clientOnly bool
	output     printer.Output
}

// versions are those of the program and of the servers of a management cluster.
type versions struct {
	Client  clientVersion   `json:"client"`
	Servers []serverVersion `json:"servers,omitempty"`
}

type clientVersion struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// serverVersion is what a Deployment of refit runs.
type serverVersion struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Image     string `json:"image"`
	// Replicas are how many there should be, and UpdatedReplicas how many of these run the image.
	Replicas        int32 `json:"replicas"`
	UpdatedReplicas int32 `json:"updatedReplicas"`
}

const versionExample = `  # Of this program, and of refit in the management cluster
  refit version

  # Of this program alone, for a script
  refit version --client -o json`

func newVersionCommand() *cobra.Command { return (&versionFlags{}).command() }

func (f *versionFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program, and what the management cluster runs",
		Long: `Shows the version of this program, and the image of each Deployment in the management cluster that has the label
app.kubernetes.io/name=refit. That takes the right to list
Deployments. What it can't learn of the management cluster is an error, after the version of this program was shown.`,
		Example: versionExample,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fs := cmd.Flags()
	f.addConnection(fs)
	fs.BoolVar(&f.clientOnly, "client", false, "Show the version of this program alone.")
	f.output.Add(cmd, printer.Text, printer.JSON, printer.YAML)
	return cmd
}

func (f *versionFlags) run(cmd *cobra.Command) error {
	if err := f.output.Check(); err != nil {
		return err
	}
	v := versions{Client: clientVersion{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}}
	out := cmd.OutOrStdout()
	if f.output.Format == printer.Text { // it is known at once
		if _, err := fmt.Fprintf(out, "Client: %s (%s, %s)\n", v.Client.Version, v.Client.Go, v.Client.Platform); err != nil {
			return err
		}
	}
	var failed error
	if !f.clientOnly {
		v.Servers, failed = f.servers(cmd.Context())
	}
	return errors.Join(v.print(out, f.output.Format), failed)
}

// versionTimeout is how long a management cluster may take to answer.
const versionTimeout = 10 * time.Second

// servers returns what the management cluster runs.
func (f *versionFlags) servers(ctx context.Context) ([]serverVersion, error) {
	f.patience = versionTimeout
	c, err := f.client()
	if err != nil {
		return nil, err
	}
	own, err := check.OwnDeployments(ctx, c)
	if err != nil {
		return nil, err
	}
	var all []serverVersion
	for i := range own {
		d := &own[i]
		s := serverVersion{Namespace: d.Namespace, Name: d.Name, Replicas: 1, UpdatedReplicas: d.Status.UpdatedReplicas}
		if d.Spec.Replicas != nil {
			s.Replicas = *d.Spec.Replicas
		}
		if containers := d.Spec.Template.Spec.Containers; len(containers) > 0 {
			s.Image = containers[0].Image
		}
		all = append(all, s)
	}
	return all, nil
}

// print prints the versions; as text those of the servers, after that of the client.
func (v versions) print(out io.Writer, format string) error {
	if printed, err := printer.Print(out, format, v); printed {
		return err
	}
	text := ""
	for _, s := range v.Servers {
		text += fmt.Sprintf("Server: %s (%d of %d replicas of %s/%s)\n", s.Image, s.UpdatedReplicas, s.Replicas, s.Namespace, s.Name)
	}
	_, err := io.WriteString(out, printer.Fold(printable(text), printer.Width(out)))
	return err
}
