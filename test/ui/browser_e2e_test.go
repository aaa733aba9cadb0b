//go:build e2e

package ui

import (
	"bufio"
	"context"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// patience is how long something may take on a machine that has other things to do.
const patience = 3 * time.Minute

// served is a page of a made-up fleet.
type served struct {
	url   string
	input io.Writer
}

// serve starts the server of a made-up fleet.
func serve(t *testing.T, args ...string) *served {
	t.Helper()
	program := os.Getenv("UIFLEET")
	if program == "" {
		program = filepath.Join(t.TempDir(), "uifleet")
		build := exec.Command("go", "build", "-trimpath", "-o", program, "./test/uifleet")
		build.Dir, build.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return &served{url: strings.TrimSpace(line), input: input}
}

// chromium returns where the browser is, or skips.
func chromium(t *testing.T) string {
	t.Helper()
	_ = os.Getenv("UI_ON") // go keeps a result for as long as the page's server and the browser are the same
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no Chromium here: apt-get install chromium")
	return ""
}

// look is how a page is looked at.
type look struct {
	width, height int64
	dark          bool
}

var (
	desktop = look{width: 1280, height: 800}
	phone   = look{width: 390, height: 844}
)

// browser is a tab, with what went wrong in it.
type browser struct {
	t    *testing.T
	ctx  context.Context
	mu   sync.Mutex
	bad  []string
	host string
}

// open opens a page.
func open(t *testing.T, s *served, as look) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.Flag("font-render-hinting", "none"),
		chromedp.Flag("lang", "en-GB"), chromedp.WindowSize(int(as.width), int(as.height)))
	if os.Geteuid() == 0 { // Chromium's sandbox does not run as root
		options = append(options, chromedp.NoSandbox)
	}
	allocator, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(endAllocator)
	ctx, endTab := chromedp.NewContext(allocator)
	t.Cleanup(endTab)
	at, err := url.Parse(s.url)
	require.NoError(t, err)
	b := &browser{t: t, ctx: ctx, host: at.Host}
	require.NoError(t, chromedp.Listen(ctx, b.note)) // which starts the browser
	b.run(command(network.Enable, network.EnableParams{}), command(log.Enable, cdp.Empty{}),
		command(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Berlin"}))
	b.as(as)
	b.run(chromedp.Navigate(s.url))
	b.until(`document.querySelector("main table tbody tr") !== null && location.search === ""`, "the page is drawn")
	return b
}

// command is an action of the protocol.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// as has the page looked at in another way.
func (b *browser) as(as look) {
	b.t.Helper()
	scheme := "light"
	if as.dark {
		scheme = "dark"
	}
	b.run(
		command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: as.width, Height: as.height, DeviceScaleFactor: 1, Mobile: as.width < 600}),
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}),
	)
}

// note takes down what a page is not to do: fail, break its own policy, or ask elsewhere.
func (b *browser) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.bad = append(b.bad, "exception: "+e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Source == log.EntrySourceSecurity {
			b.bad = append(b.bad, "log: "+e.Entry.Text)
		}
	case *network.EventRequestWillBeSent:
		if at, err := url.Parse(e.Request.URL); err != nil || at.Host != b.host && at.Scheme != "data" {
			b.bad = append(b.bad, "request: "+e.Request.URL)
		}
	case *page.EventJavascriptDialogOpening:
		b.bad = append(b.bad, "dialog: "+e.Message)
	}
}

// clean fails the test if something went wrong.
func (b *browser) clean() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.bad)
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, actions...))
}

// js runs a script.
func (b *browser) js(script string) {
	b.t.Helper()
	get[bool](b, "(() => { "+script+"; return true; })()")
}

// get returns the value of an expression.
func get[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err, expression)
	return out
}

// until waits until an expression is true.
func (b *browser) until(expression, what string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	var err error
	for is := false; !is; time.Sleep(50 * time.Millisecond) {
		is, err = chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")")) // a page that is on its way answers nothing
		require.NoError(b.t, ctx.Err(), "%s: %s: %v", what, expression, err)
	}
}

// text is the text of what is shown.
const text = `document.querySelector("main").innerText`

// view goes to a view by the menu.
func (b *browser) view(name, until string) {
	b.t.Helper()
	b.run(chromedp.Click(chromedp.Search(`//nav/a[text()="` + name + `"]`)))
	b.until(until, name)
}
