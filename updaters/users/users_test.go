package users_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/updatertest"
	"github.com/capi-refit/refit/updaters/users"
)

const (
	key1 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFk/gSdzwbl2gcGcXmGGLMZSj0xdTJHpd+HjbfxZfrZl alice@example"
	key2 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEwhdAtwjY8GYRR/adC1vfzR09hR3iLIXIlOnFbB5PEU bob@example"
	hash = "$6$saltsalt$8RWsOfwR6M6PpnoeQiEiWzNTPo1f0HjVYjDnLZhGx16aBFRkeqiHAzfXP/LgrOWMBMXqiU2pLrXsSOHNUyUm91"
)

// The actions of accounts and keys differ from the built-in ones, so that a test tells one from the other.
func rules() disruption.Rules {
	r := disruption.BuiltinRules()
	r.Domains[disruption.Users] = []disruption.Action{{Type: disruption.Drain}}
	r.Domains[disruption.SSHKeys] = []disruption.Action{{Type: disruption.Reload, Unit: "ssh.service"}}
	return r
}

const (
	account = "Drain"
	key     = "Reload ssh.service"
	both    = "Drain,Reload ssh.service"
)

func kubeadm(current, desired string) updatertest.Case {
	return inFormat("cloud-config", current, desired)
}

func inFormat(format, current, desired string) updatertest.Case {
	spec := func(users string) string { return `{"format":"` + format + `","users":[` + users + `]}` }
	return updatertest.Case{
		Object: fieldset.BootstrapConfig, APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig",
		Current: spec(current), Desired: spec(desired),
	}
}

// ignition changes a user of a machine that Ignition has made.
func ignition(current, desired string) updatertest.Case {
	return inFormat("ignition", current, desired)
}

func user(fields string) string { return `{"name":"alice"` + fields + `}` }

// alice changes fields of a user.
func alice(current, desired string) updatertest.Case { return kubeadm(user(current), user(desired)) }

func keysOf(list ...string) string {
	return `,"sshAuthorizedKeys":["` + strings.Join(list, `","`) + `"]`
}

// claims are what is said of each changed field: its actions, or why it is left.
var claims = map[string]struct {
	updatertest.Case
	want string
}{
	"a key that comes":                          {alice("", keysOf(key1)), key},
	"a key that goes":                           {alice(keysOf(key1, key2), keysOf(key2)), key},
	"the last key that goes":                    {alice(keysOf(key1), ""), key},
	"the order of keys":                         {alice(keysOf(key1, key2), keysOf(key2, key1)), key},
	"a key with options":                        {alice("", keysOf(`from=\"10.0.0.0/8\",no-pty `+key1)), key},
	"a user that comes":                         {kubeadm("", user("")), both},
	"a user that comes with keys":               {kubeadm("", user(keysOf(key1))), both},
	"a user that goes":                          {kubeadm(user(""), ""), both},
	"a user that goes with keys":                {kubeadm(user(keysOf(key1)), ""), both},
	"the order of users":                        {kubeadm(user("")+`,{"name":"bob"}`, `{"name":"bob"},`+user("")), "None"},
	"a password":                                {alice("", `,"passwd":"`+hash+`"`), account},
	"a password out of a Secret":                {alice(`,"passwd":"`+hash+`"`, `,"passwdFrom":{"secret":{"name":"s","key":"k"}}`), account + "|" + account + "|" + account},
	"another Secret":                            {alice(`,"passwdFrom":{"secret":{"name":"s","key":"k"}}`, `,"passwdFrom":{"secret":{"name":"t","key":"k"}}`), account},
	"a password that goes":                      {alice(`,"passwd":"`+hash+`"`, ""), account},
	"a password that goes from an open account": {alice(`,"lockPassword":false,"passwd":"`+hash+`"`, `,"lockPassword":false`), account},
	"a lock":                           {alice(`,"lockPassword":false`, `,"lockPassword":true`), account},
	"a shell":                          {alice("", `,"shell":"/bin/bash"`), account},
	"a shell that goes":                {alice(`,"shell":"/bin/bash"`, ""), "name one instead"},
	"a shell that goes by being empty": {alice(`,"shell":"/bin/bash"`, `,"shell":""`), "name one instead"},
	"groups":                           {alice(`,"groups":"a"`, `,"groups":"a, b"`), account},
	"groups that go":                   {alice(`,"groups":"a"`, ""), account},
	"a comment":                        {alice("", `,"gecos":"Alice, of operations"`), account},
	"a comment that goes":              {alice(`,"gecos":"Alice"`, ""), "write another one instead"},
	"inactive":                         {alice("", `,"inactive":true`), account},
	"a sudo rule":                      {alice("", `,"sudo":"ALL=(ALL) NOPASSWD:ALL"`), account},
	"a sudo rule that goes":            {alice(`,"sudo":"ALL=(ALL) NOPASSWD:ALL"`, ""), account},
	"a home directory":                 {alice("", `,"homeDir":"/srv/alice"`), "is not moved"},
	"a home directory of a new user":   {kubeadm("", user(`,"homeDir":"/srv/alice"`)), both},
	"a primary group":                  {alice(`,"primaryGroup":"a"`, `,"primaryGroup":"b"`), "primary group of a user is not changed"},
	"several fields, one of which can't be": {
		alice(`,"shell":"/bin/sh"`, `,"shell":"/bin/bash","homeDir":"/srv/alice"`+keysOf(key1)), "is not moved|" + account + "|" + key,
	},

	"keys of root":                   {kubeadm(`{"name":"root"}`, `{"name":"root"`+keysOf(key1)+`}`), key},
	"root that comes with keys":      {kubeadm("", `{"name":"root"`+keysOf(key1)+`}`), key},
	"root that goes with keys":       {kubeadm(`{"name":"root"`+keysOf(key1)+`}`, ""), key},
	"the password of root":           {kubeadm(`{"name":"root"}`, `{"name":"root","passwd":"`+hash+`"}`), "of root only the SSH keys"},
	"root that comes with more":      {kubeadm("", `{"name":"root","shell":"/bin/sh"}`), "of root only the SSH keys"},
	"root that goes with more":       {kubeadm(`{"name":"root","shell":"/bin/sh"`+keysOf(key1)+`}`, ""), "of root only the SSH keys"},
	"keys of root with other fields": {kubeadm(`{"name":"root","shell":"/bin/sh"}`, `{"name":"root","shell":"/bin/sh"`+keysOf(key1)+`}`), key},

	"a name that useradd refuses":           {kubeadm("", `{"name":"al ice"}`), "name is not one that useradd takes"},
	"a name that is a number":               {kubeadm("", `{"name":"1000"}`), "name is not read as it is written"},
	"a name with a capital letter":          {kubeadm("", `{"name":"Alice"}`), "name is not one that useradd takes"},
	"a name that is an option":              {kubeadm("", `{"name":"-r"}`), "name is not one that useradd takes"},
	"a name that is too long":               {kubeadm("", `{"name":"a23456789012345678901234567890123"}`), "no more than 32"},
	"a name in quotes":                      {kubeadm("", `{"name":"'alice'"}`), "quotes or blanks around it"},
	"cloud-init's default user":             {kubeadm("", `{"name":"default"}`), "distribution's own user"},
	"a user whose name was refused":         {kubeadm(`{"name":"default"}`, ""), "is not taken away by it"},
	"two users with one name":               {kubeadm(user(""), user("")+","+user(keysOf(key1))), "two users have the same name"},
	"a user without a name":                 {kubeadm("", `{"shell":"/bin/sh"}`), "or one has none"},
	"an empty list":                         {updatertest.Case{Object: fieldset.BootstrapConfig, APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig", Current: `{}`, Desired: `{"users":[]}`}, "None"},
	"a field of the future":                 {alice("", `,"uid":1000`), `does not know the field "uid"`},
	"a field of the future at keys":         {alice(`,"uid":1000`, `,"uid":1000`+keysOf(key1)), `does not know the field "uid"`},
	"a shell that is not absolute":          {alice("", `,"shell":"bash"`), "shell is not an absolute, clean path"},
	"a shell with a colon":                  {alice("", `,"shell":"/bin/sh:/x"`), "shell is not an absolute, clean path"},
	"a sudo rule on two lines":              {alice("", `,"sudo":"ALL=(ALL) ALL\nbob ALL=(ALL) ALL"`), "sudo has a line break"},
	"a sudo rule on two lines in quotes":    {alice("", `,"sudo":"\"ALL=(ALL) ALL\\nbob ALL=(ALL) ALL\""`), "sudo has a line break"},
	"a sudo rule that goes on":              {alice("", `,"sudo":"ALL=(ALL) ALL \\"`), "sudo is not a sudoers rule"},
	"a sudo rule that is none":              {alice("", `,"sudo":"yes please"`), "sudo is not a sudoers rule"},
	"a list of sudo rules":                  {alice("", `,"sudo":"[\"ALL=(ALL) ALL\"]"`), "sudo is not read as it is written"},
	"a password that is no hash":            {alice("", `,"passwd":"hunter2hunter2"`), "passwd is not a hash of crypt(3)"},
	"a password that DES may have made":     {alice("", `,"passwd":"abiQ6Ep3EYTHc"`), "passwd is not a hash of crypt(3)"},
	"a password and a Secret with one":      {alice("", `,"passwd":"`+hash+`","passwdFrom":{"secret":{"name":"s","key":"k"}}`), strings.Repeat("passwd and passwdFrom are both there|", 2) + "both"},
	"a password out of something else":      {alice("", `,"passwdFrom":{"vault":{"path":"x"}}`), "passwdFrom needs a secret"},
	"a password out of a Secret as a whole": {alice("", `,"passwdFrom":{"secret":{"name":"s"}}`), "passwdFrom needs a secret"},
	"a key on two lines":                    {alice("", keysOf(key1+`\n`+key2)), "sshAuthorizedKeys[0] has a line break"},
	"a key that is none":                    {alice("", keysOf(key1, "ssh-ed25519 AAAA x")), "sshAuthorizedKeys[1] is not a public key"},
	"a key of another type than it says":    {alice("", keysOf(strings.Replace(key1, "ssh-ed25519", "ssh-rsa", 1))), "sshAuthorizedKeys[0] is not a public key"},
	"a key that is a comment":               {alice("", keysOf("# "+key1)), "sshAuthorizedKeys[0] is not read as it is written"},
	"a key that is a comment in quotes":     {alice("", keysOf("'# "+key1+"'")), "sshAuthorizedKeys[0] is a comment"},
	"an empty key":                          {alice("", keysOf("")), "sshAuthorizedKeys[0] is empty"},
	"keys that are no list":                 {alice("", `,"sshAuthorizedKeys":"x"`), "sshAuthorizedKeys is not a list"},
	"a lock that is no flag":                {alice("", `,"lockPassword":"no"`), "lockPassword is neither true nor false"},
	"a shell that is no text":               {alice("", `,"shell":1`), "shell is not a text"},
	"a group that groupadd refuses":         {alice("", `,"groups":"a,b c"`), "groups is not a list of names"},
	"an empty group":                        {alice("", `,"groups":"a,,b"`), "groups is not a list of names"},
	"a comment with a colon":                {alice("", `,"gecos":"a:b"`), "gecos has a colon"},
	"a comment that YAML reads otherwise":   {alice("", `,"gecos":"Alice #1"`), "gecos is not read as it is written"},
	"a comment in Jinja":                    {alice("", `,"gecos":"{{ ds.x }}"`), "gecos has a Jinja expression"},

	"Ignition, keys":                        {ignition(user(""), user(keysOf(key1))), key},
	"Ignition, a shell":                     {ignition(user(""), user(`,"shell":"/bin/bash"`)), account},
	"Ignition, groups":                      {ignition(user(""), user(`,"groups":"a, b"`)), account},
	"Ignition, groups that it takes as one": {ignition(user(""), user(`,"groups":"a,b"`)), "groups is not a list of names"},
	"Ignition, a lock":                      {ignition(user(""), user(`,"lockPassword":false`)), "part of sshd's configuration"},
	"Ignition, a sudo rule":                 {ignition(user(""), user(`,"sudo":"ALL=(ALL) ALL"`)), "file of the same name"},
	"Ignition, a user with a sudo rule":     {ignition("", user(`,"sudo":"ALL=(ALL) ALL"`)), "file of the same name"},
	"Ignition, Jinja means nothing":         {ignition(user(""), user(`,"gecos":"a {{ b }}"`)), account},
}

func TestClaim(t *testing.T) {
	for name, tc := range claims {
		t.Run(name, func(t *testing.T) {
			change := tc.Change(t)
			claim, err := users.New(rules()).Claim(t.Context(), change)
			require.NoError(t, err)
			want := strings.Split(tc.want, "|")
			require.Len(t, claim.Covered, len(change.Fields())-len(claim.Left))
			require.Len(t, change.Fields(), len(want))
			for i, f := range change.Fields() {
				require.Contains(t, said(claim, f), want[i])
			}
		})
	}
}

// said is what a claim says of a field.
func said(claim updaters.Claim, f fieldset.Field) string {
	for _, l := range claim.Left {
		if l.Field.Path.Equals(f.Path) {
			return l.Reason
		}
	}
	var actions []string
	for _, c := range claim.Covered {
		if c.Field.Path.Equals(f.Path) {
			for _, a := range c.Actions {
				actions = append(actions, a.String())
			}
		}
	}
	return strings.Join(actions, ",")
}

func TestTheRulesDecide(t *testing.T) {
	for domain, want := range map[disruption.Domain][]string{
		disruption.SSHKeys: {"a key that comes", "a user that comes", "a user that goes", "root that comes with keys"},
		disruption.Users:   {"a user that comes", "a user that goes", "a shell"},
	} {
		r := rules()
		r.Domains[domain] = []disruption.Action{{Type: disruption.Replace}}
		for _, name := range want {
			t.Run(string(domain)+", "+name, func(t *testing.T) {
				claim, err := users.New(r).Claim(t.Context(), claims[name].Change(t))
				require.NoError(t, err)
				require.Empty(t, claim.Covered)
				require.Contains(t, claim.Left[0].Reason, string(domain)+" is not made in place")
			})
		}
	}
}

func TestConformance(t *testing.T) {
	cases := map[string]updatertest.Case{
		"another field": {
			Object: fieldset.BootstrapConfig, APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig",
			Current: `{}`, Desired: `{"ntp":{"enabled":true}}`,
		},
		"users of another kind": {
			Object: fieldset.BootstrapConfig, APIVersion: "bootstrap.example.org/v1", Kind: "OtherConfig",
			Current: `{}`, Desired: `{"users":[{"name":"alice"}]}`,
		},
		"users of an infrastructure machine": {
			Object: fieldset.InfrastructureMachine, APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig",
			Current: `{}`, Desired: `{"users":[{"name":"alice"}]}`,
		},
	}
	for name, tc := range claims {
		cases[name] = tc.Case
	}
	updatertest.Conform(t, users.New(rules()), cases)
}

func desired(t testing.TB, spec string) updaters.Desired {
	v, err := fieldset.Decode([]byte(spec))
	require.NoError(t, err)
	return updaters.Desired{
		BootstrapConfig: fieldset.Spec{APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig", Value: v},
		Secret: func(name, key string) ([]byte, error) {
			switch name + "/" + key {
			case "s/k":
				return []byte(hash + "\n"), nil
			case "s/plain":
				return []byte("hunter2"), nil
			default:
				return nil, errors.New("no such Secret")
			}
		},
	}
}

func TestDesire(t *testing.T) {
	for name, tc := range map[string]struct {
		users string
		want  []node.User
	}{
		"only a name": {user(""), []node.User{{Name: "alice"}}},
		"everything": {
			user(`,"gecos":"'Alice #1'","groups":"adm, sudo","homeDir":"/srv/alice","inactive":true,"shell":"/bin/bash",` +
				`"passwd":"` + hash + `","primaryGroup":"ops","lockPassword":false,"sudo":"ALL=(ALL) NOPASSWD:ALL"` + keysOf(key1, key2)),
			[]node.User{{
				Name: "alice", Gecos: "Alice #1", Groups: []string{"adm", "sudo"}, HomeDir: "/srv/alice", Inactive: true, Shell: "/bin/bash",
				PasswordHash: hash, PrimaryGroup: "ops", LockPassword: new(false), Sudo: "ALL=(ALL) NOPASSWD:ALL", SSHAuthorizedKeys: []string{key1, key2},
			}},
		},
		"a password out of a Secret":               {user(`,"passwdFrom":{"secret":{"name":"s","key":"k"}}`), []node.User{{Name: "alice", PasswordHash: hash}}},
		"what can't be made in place is left":      {user(`,"shell":"bash"`) + `,{"name":"bob"}`, []node.User{{Name: "alice", Unmanaged: true}, {Name: "bob"}}},
		"a name that comes twice is left":          {user("") + `,{"name":"bob"},` + user(keysOf(key1)), []node.User{{Name: "alice", Unmanaged: true}, {Name: "bob"}}},
		"what has no name can't be left by name":   {`{"shell":"/bin/sh"},{"name":""}`, nil},
		"a plain password is not even looked at":   {user(`,"passwd":"hunter2"`), []node.User{{Name: "alice", Unmanaged: true}}},
		"root has what the specs say, like others": {`{"name":"root"` + keysOf(key1) + `}`, []node.User{{Name: "root", SSHAuthorizedKeys: []string{key1}}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := users.New(rules()).Desire(desired(t, `{"users":[`+tc.users+`]}`))
			require.NoError(t, err)
			require.Equal(t, tc.want, listed(got))
		})
	}
}

func listed(resources []node.Resource) []node.User {
	var all []node.User
	for _, r := range resources {
		all = append(all, *r.User)
	}
	return all
}

func TestIgnitionLocksNoPasswordAndHasItsOwnSudoers(t *testing.T) {
	got, err := users.New(rules()).Desire(desired(t, `{"format":"ignition","users":[`+user(`,"sudo":"ALL=(ALL) ALL","passwd":"`+hash+`"`)+`,{"name":"bob"}]}`))
	require.NoError(t, err)
	require.Equal(t, []node.User{{Name: "alice", PasswordHash: hash, LockPassword: new(false)}, {Name: "bob"}}, listed(got))
}

func TestDesireErrors(t *testing.T) {
	for name, tc := range map[string]struct{ from, want string }{
		"a Secret that is not there":     {`{"secret":{"name":"other","key":"k"}}`, "user alice: read the password's hash: no such Secret"},
		"a Secret with a plain password": {`{"secret":{"name":"s","key":"plain"}}`, "user alice: what passwdFrom refers to is not a hash of crypt(3)"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := users.New(rules()).Desire(desired(t, `{"users":[`+user(`,"passwdFrom":`+tc.from)+`]}`))
			require.ErrorContains(t, err, tc.want)
			require.NotContains(t, err.Error(), "hunter2", "errors show no passwords")
		})
	}
}

func TestHashes(t *testing.T) {
	for form, ok := range map[string]bool{
		hash: true,
		"$5$saltsalt$hcyDOxdIg0p3xyqtpHh/v8Ph.am06tQaovp1KpEklb7":                          true,
		"$5$rounds=5000$saltsalt$hcyDOxdIg0p3xyqtpHh/v8Ph.am06tQaovp1KpEklb7":              true,
		"$1$saltsalt$4px9i58NU2Z2/vZOUlGjq.":                                               true,
		"$y$j9T$F5Jx5fExrKuPp53xLKQ..1$6foLM1JhGupouWKMU70wxK61Kw9ZnecbACjJwRadqM2":        true,
		"$gy$j9T$F5Jx5fExrKuPp53xLKQ..1$swDwqc9roxMj9t43.TdN6v6uEgFlLv6oDhMVx4g6bhA":       true,
		"$2b$05$abcdefghijklmnopqrstuuhKF09ZYWwH2zP/0fwE1X8e/Q1YNx/hO":                     true,
		"$7$CU..../....2Q9obwLhin8qvQl6sisAO/$.bP7HtD2HP.OKbRurZTdgkP/04.gFdcR2KR0sT1oqh9": true,
		"$6$saltsalt$tooshort": false,
		"$ecret$ecret":         false,
		"!":                    false,
		"!" + hash:             false,
		hash + ":0":            false,
	} {
		t.Run(form, func(t *testing.T) {
			got, err := users.New(rules()).Desire(desired(t, `{"users":[`+user(`,"passwd":"`+form+`"`)+`]}`))
			require.NoError(t, err)
			require.Equal(t, ok, !got[0].User.Unmanaged)
		})
	}
}
