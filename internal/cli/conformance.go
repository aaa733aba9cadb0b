package cli

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/capi-refit/refit/internal/conformance"
	"github.com/capi-refit/refit/internal/printer"
)

const conformanceExample = `  # Does my extension keep the laws?
  refit conformance --url https://127.0.0.1:9443 --ca ca.crt

  # By a port-forward, with requests of my own, of which it claims something
  refit conformance --url https://127.0.0.1:9443 --server-name my-extension.my-system.svc --ca ca.crt -f request.json

  # Have a Machine updated, too: the one in the request
  refit conformance --url https://127.0.0.1:9443 --ca ca.crt --update-machine -f updatemachine.json`

// conformanceFlags are those of conformance.
type conformanceFlags struct {
	url, ca, cert, key, serverName string
	output                         printer.Output
	handlers, files                []string
	updateMachine                  bool
}

func newConformanceCommand() *cobra.Command {
	f := &conformanceFlags{}
	cmd := &cobra.Command{
		Use:   "conformance --url URL --ca FILE",
		Short: "Say which laws an extension for in-place updates keeps, and which it breaks",
		Long: `For who writes a runtime extension for Cluster API's in-place updates. It is asked as Cluster API's managers ask it, by requests that they
have sent, and in ways in which they never would: with bodies that are broken, deep or huge. Each law says what it demands and where that comes from.

CanUpdateMachine and CanUpdateMachineSet change nothing. UpdateMachine changes machines, so it is called only with --update-machine. Don't have an
extension that others need asked: one that breaks a law may end by it.

It exits with 0 if no law is broken, 2 if one is, 1 if the extension could not be asked.`,
		Example: conformanceExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.output.Check(); err != nil {
				return err
			}
			s, err := f.suite(cmd.InOrStdin())
			if err != nil {
				return err
			}
			report, err := s.Run(cmd.Context())
			if err != nil {
				return err
			}
			if err := printConformance(cmd.OutOrStdout(), report, f.output.Format); err != nil {
				return err
			}
			if len(report.Broken()) > 0 {
				return &exitStatus{2, nil}
			}
			return nil
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.url, "url", "", "URL of the extension, as in an ExtensionConfig: https, without the path of a hook.")
	fs.StringVar(&f.ca, "ca", "", "File with the CA bundle of its serving certificate, in PEM.")
	fs.StringVar(&f.serverName, "server-name", "", "Name in its serving certificate, if it is not the host of the URL.")
	fs.StringVar(&f.cert, "cert", "", "File with a client certificate, in PEM, if it asks for one; with --key.")
	fs.StringVar(&f.key, "key", "", "File with the key of the client certificate.")
	fs.StringArrayVar(&f.handlers, "handler", nil, "Name of a handler. Only those that are named are looked at. Can be there more than once.")
	fs.StringArrayVarP(&f.files, "filename", "f", nil, "File with a request of your own, in JSON or YAML, to be sent beside the recorded ones; - for standard input. Can be there more than once.")
	fs.BoolVar(&f.updateMachine, "update-machine", false, "Call UpdateMachine, which changes machines: with the requests for it that --filename names, else with a recorded one.")
	f.output.Add(cmd, printer.Table, printer.JSON, printer.YAML)
	_ = cmd.MarkFlagRequired("url") // the flags are there
	_ = cmd.MarkFlagRequired("ca")
	return cmd
}

func (f *conformanceFlags) suite(stdin io.Reader) (*conformance.Suite, error) {
	at, err := url.Parse(f.url)
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	if at.Scheme != "https" || at.Host == "" {
		return nil, fmt.Errorf("--url is %q and has to begin with https:// and a host", f.url)
	}
	if (f.cert == "") != (f.key == "") {
		return nil, errors.New("--cert and --key go together")
	}
	bundle, err := os.ReadFile(f.ca)
	if err != nil {
		return nil, fmt.Errorf("--ca: %w", err)
	}
	var certificate *tls.Certificate
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("--cert and --key: %w", err)
		}
		certificate = &pair
	}
	client, err := conformance.NewClient(bundle, certificate, f.serverName)
	if err != nil {
		return nil, fmt.Errorf("--ca %s: %w", f.ca, err)
	}
	requests, err := f.requests(stdin)
	return &conformance.Suite{Client: client, URL: at, Handlers: f.handlers, Requests: requests, UpdateMachine: f.updateMachine}, err
}

func (f *conformanceFlags) requests(stdin io.Reader) ([]conformance.Request, error) {
	if err := checkFiles(f.files...); err != nil {
		return nil, err
	}
	var all []conformance.Request
	for _, name := range f.files {
		data, err := readFile(stdin, name)
		if err != nil {
			return nil, err
		}
		r, err := conformance.ReadRequest(name, data)
		if err != nil {
			return nil, err
		}
		if r.ForUpdateMachine() && !f.updateMachine {
			return nil, fmt.Errorf("%s has an UpdateMachineRequest, which changes a machine: it is sent with --update-machine only", name)
		}
		all = append(all, r)
	}
	return all, nil
}

// printConformance prints all laws, and then of each that is broken what shows it.
func printConformance(w io.Writer, r *conformance.Report, output string) error {
	if printed, err := printer.Print(w, output, r); printed {
		return err
	}
	rows := printer.Rows{{"LAW", "RESULT", "BY"}}
	count := map[conformance.Result]int{}
	for _, f := range r.Findings {
		count[f.Result]++
		by := f.Reason
		if f.Result == conformance.Fail {
			by = "see below"
		}
		rows.Add(f.Name, string(f.Result), by)
	}
	text := ""
	for _, f := range slices.DeleteFunc(slices.Clone(r.Findings), func(f conformance.Finding) bool { return f.Result != conformance.Fail }) {
		text += fmt.Sprintf("\n%s: %s\n  From: %s\n", f.Name, f.Demands, f.Source) + labelled("  - ", f.Evidence)
	}
	text += fmt.Sprintf("\n%d laws kept, %d broken, %d not looked at\n", count[conformance.Pass], count[conformance.Fail], count[conformance.Skip])
	width := printer.Width(w)
	_, err := io.WriteString(w, rows.Text("", width)+printer.Fold(printable(text), width))
	return err
}
