package disruption

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The bounds of a Probe.
const (
	DefaultProbeTimeout = 10 * time.Second
	MaxProbeTimeout     = 5 * time.Minute
	DefaultProbeRetries = 2
	MaxProbeRetries     = 10
	maxProbeName        = 63
)

// Probe is a question of a policy's: whether something works on a node that only its owner knows of. One of Exec, HTTP, TCP, Unit and
// Condition is set.
type Probe struct {
	// Name is what people know it by. Policies that select a machine can have the same name for different questions.
	Name string `json:"name"`
	// Exec is a program with its arguments, which the agent runs as root. It works if it exits with 0.
	Exec []string `json:"exec,omitempty"`
	// HTTP is what answers a GET with a status of 200 to 399.
	HTTP *HTTPProbe `json:"http,omitempty"`
	// TCP is the host:port that takes a connection.
	TCP string `json:"tcp,omitempty"`
	// Unit is the systemd unit that is active, and is not started again while the node is watched.
	Unit string `json:"unit,omitempty"`
	// Condition is the condition that the Node object has.
	Condition *ConditionProbe `json:"condition,omitempty"`
	// Timeout is how long one try may take.
	Timeout time.Duration `json:"timeout"`
	// Retries is how often it is asked again, after it has failed, until that counts.
	Retries int `json:"retries"`
	// From names the policies that it comes from.
	From string `json:"from,omitempty"`
}

// HTTPProbe is a URL that is asked from the node.
type HTTPProbe struct {
	// URL is of the scheme http or https, and holds no login.
	URL string `json:"url"`
	// CAFile is a file of the node with the authorities that the server is verified by. Empty: those that the node trusts.
	CAFile string `json:"caFile,omitempty"`
	// InsecureSkipVerify takes whatever certificate the server has.
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// ConditionProbe is a condition of the Node object.
type ConditionProbe struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

var (
	probeName     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	conditionType = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$`)
)

// Asks returns what the probe asks, as people read it, for example "GET http://127.0.0.1:8080/healthz".
func (p Probe) Asks() string {
	switch {
	case len(p.Exec) > 0:
		words := make([]string, len(p.Exec))
		for i, w := range p.Exec {
			if words[i] = w; w == "" || strings.ContainsAny(w, " \t\r\n\"'\\") {
				words[i] = strconv.Quote(w)
			}
		}
		return "run " + strings.Join(words, " ")
	case p.HTTP != nil:
		return "GET " + p.HTTP.URL
	case p.TCP != "":
		return "connect to " + p.TCP
	case p.Unit != "":
		return p.Unit + " is active"
	case p.Condition != nil:
		return "the Node has " + p.Condition.Type + "=" + p.Condition.Status
	}
	return "nothing"
}

// Key tells the probe from others with the same name that ask something else. How long and how often they ask makes no other probe.
func (p Probe) Key() string {
	p.Timeout, p.Retries, p.From = 0, 0, ""
	data, err := json.Marshal(p)
	if err != nil { // which strings can't be the cause of
		data = []byte(p.Asks())
	}
	sum := sha256.Sum256(data)
	return p.Name + " " + hex.EncodeToString(sum[:8])
}

// Validate returns an error that says what is wrong with the probe, or nil.
func (p Probe) Validate() error {
	if len(p.Name) > maxProbeName || !probeName.MatchString(p.Name) {
		return fmt.Errorf("%q is not a name of at most %d small letters, digits and dashes", p.Name, maxProbeName)
	}
	asked := 0
	for _, is := range []bool{p.Exec != nil, p.HTTP != nil, p.TCP != "", p.Unit != "", p.Condition != nil} {
		if is {
			asked++
		}
	}
	switch {
	case asked != 1:
		return errors.New("it asks for one of exec, http, tcp, unit and nodeCondition, and no more")
	case p.Timeout <= 0 || p.Timeout > MaxProbeTimeout:
		return fmt.Errorf("its timeout is %s, and has to be more than nothing and at most %s", p.Timeout, MaxProbeTimeout)
	case p.Retries < 0 || p.Retries > MaxProbeRetries:
		return fmt.Errorf("it has %d retries, and can have 0 to %d", p.Retries, MaxProbeRetries)
	}
	return p.validQuestion()
}

// validQuestion returns an error unless what the probe asks can be asked.
func (p Probe) validQuestion() error {
	switch {
	case p.HTTP != nil:
		return p.HTTP.validate()
	case p.TCP != "":
		return validAddress(p.TCP)
	case p.Condition != nil:
		return p.Condition.validate()
	case p.Exec != nil:
		return validCommand(p.Exec)
	case !ValidUnit(p.Unit):
		return fmt.Errorf("%q is not the name of a systemd unit", p.Unit)
	}
	return nil
}

func validCommand(argv []string) error {
	if len(argv) == 0 || argv[0] == "" {
		return errors.New("its command is empty")
	}
	if slices.ContainsFunc(argv, func(w string) bool { return strings.ContainsRune(w, 0) }) {
		return errors.New("its command contains a NUL byte")
	}
	if strings.Contains(argv[0], "/") {
		return ValidPath(argv[0])
	}
	return nil
}

func (h HTTPProbe) validate() error {
	u, err := url.Parse(h.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("its url is not one of http or https") // which is not quoted: it may hold a login
	case u.User != nil:
		return errors.New("its url has a login in it, which whoever reads the policy can read")
	case h.CAFile != "":
		return ValidPath(h.CAFile)
	}
	return nil
}

func validAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	n, bad := strconv.Atoi(port)
	if err != nil || bad != nil || host == "" || n < 1 || n > 65535 {
		return fmt.Errorf("%q is not a host and a port, such as 127.0.0.1:5432", address)
	}
	return nil
}

func (c ConditionProbe) validate() error {
	if !conditionType.MatchString(c.Type) {
		return fmt.Errorf("%q is not the type of a condition", c.Type)
	}
	if !slices.Contains([]string{"True", "False", "Unknown"}, c.Status) {
		return fmt.Errorf("%q is not the status of a condition: True, False or Unknown", c.Status)
	}
	return nil
}

// MaxProbes is how many probes of policies a node may be asked. Each takes time, twice in an update and again and again while the node soaks.
const MaxProbes = 40

// TooMany returns an error if a node would be asked more probes than MaxProbes. It names the policies that they come from.
func TooMany(probes []Probe) error {
	if len(probes) <= MaxProbes {
		return nil
	}
	var from []string
	for _, p := range probes {
		from = append(from, strings.Split(p.From, ", ")...)
	}
	return fmt.Errorf("the policies that select the machine (%s) have %d probes together, of which %d are allowed; take some out, or select fewer machines",
		strings.Join(slices.Compact(slices.Sorted(slices.Values(from))), ", "), len(probes), MaxProbes)
}

// checkProbes returns an error if something is wrong with one of the probes, or there are too many.
func checkProbes(probes []Probe) error {
	if err := TooMany(probes); err != nil {
		return err
	}
	for _, p := range probes {
		if err := p.Validate(); err != nil {
			return fmt.Errorf("probe %s: %w", p.Name, err)
		}
	}
	return nil
}

// mergeProbes joins the probes of policies. All of them count. Those with the same name that ask the same are one, with the longest timeout
// and the most retries, as equal actions are; those with the same name that ask something else are two. The result does not depend on the
// order of the policies, and shares nothing with them.
func mergeProbes(base []Probe, policies []PolicyRules) []Probe {
	all := map[string]Probe{}
	from := map[string][]string{}
	add := func(p Probe, name string) {
		key := p.Key()
		if known, ok := all[key]; ok {
			p.Timeout, p.Retries = max(p.Timeout, known.Timeout), max(p.Retries, known.Retries)
		}
		if name != "" {
			from[key] = append(from[key], name)
		}
		all[key] = p.clone()
	}
	for _, p := range base {
		add(p, p.From)
	}
	for _, policy := range policies {
		for _, p := range policy.Rules.Probes {
			add(p, policy.Name)
		}
	}
	var out []Probe
	for key, p := range all {
		p.From = strings.Join(slices.Compact(slices.Sorted(slices.Values(from[key]))), ", ")
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Probe) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key(), b.Key())) })
	return out
}

func (p Probe) clone() Probe {
	p.Exec = slices.Clone(p.Exec)
	if p.HTTP != nil {
		p.HTTP = new(*p.HTTP)
	}
	if p.Condition != nil {
		p.Condition = new(*p.Condition)
	}
	return p
}

// String returns the probe as people read it, for example "app: GET http://127.0.0.1:8080/healthz (at most 10s, 2 retries), by fleet".
func (p Probe) String() string { return fmt.Sprintf("%s: %s, by %s", p.Name, p.limits(), p.From) }

// limits returns what the probe asks, and for how long and how often.
func (p Probe) limits() string {
	retries := fmt.Sprintf("%d retries", p.Retries)
	if p.Retries == 1 {
		retries = "1 retry"
	}
	return fmt.Sprintf("%s (at most %s, %s)", p.Asks(), p.Timeout, retries)
}

// describe returns the probe among the rules that people read.
func (p Probe) describe() Described {
	return Described{Kind: "Probe", Name: p.Name, Actions: []string{p.limits()}, From: cmp.Or(p.From, BuiltIn)}
}
