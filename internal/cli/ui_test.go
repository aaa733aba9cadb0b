package cli

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/internal/ui/uitest"
)

func TestUI(t *testing.T) {
	flags := &uiFlags{clock: clocktesting.NewFakePassiveClock(uitest.Now)}
	flags.connect = func(*rest.Config) (client.WithWatch, error) { return uitest.New(uitest.Fleet()...), nil }
	cmd := flags.command()
	out, in := io.Pipe()
	cmd.SetOut(in)
	cmd.SetArgs([]string{"-n", "edge"})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	said := regexp.MustCompile(`http://127\.0\.0\.1:\d+/\?token=\w+`).FindString(line)
	require.NotEmpty(t, said, line)
	line, err = lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "Ctrl-C ends it.\n", line)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
	at, err := url.Parse(said)
	require.NoError(t, err)
	for _, path := range []string{at.RequestURI(), "/", "/api/fleet"} {
		res, err := browser.Get("http://" + at.Host + path)
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusOK, res.StatusCode, "%s: %s", path, body)
	}
	cancel()
	require.NoError(t, <-ended)
}

func TestUIIsServedOnLoopbackOnly(t *testing.T) {
	flags := &uiFlags{}
	flags.connect = func(*rest.Config) (client.WithWatch, error) { return uitest.New(), nil }
	_, err := run(t, flags.command(), "--address", "0.0.0.0:8080")
	require.ErrorContains(t, err, "the page is served on 127.0.0.1 only")
	_, err = run(t, newUICommand(), "something")
	require.Error(t, err)
}
