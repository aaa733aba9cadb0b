//go:build e2e

package ui

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

const rows = `document.querySelectorAll("main table:not(.lanes) > tbody > tr").length`

func TestThePage(t *testing.T) {
	b := open(t, serve(t), desktop)
	t.Run("the fleet", func(t *testing.T) {
		b.until(rows+" === 9", "a row for each cluster")
		require.Contains(t, get[string](b, text), "52 machines in 9 clusters")
		require.Equal(t, 52, get[int](b, `document.querySelectorAll("a.cell").length`))
		require.Equal(t, "!", get[string](b, `document.querySelector("a.cell").innerText.trim()[0]`))
		b.until(`document.querySelector("#live").textContent === "live"`, "it listens to news")
		require.Contains(t, get[string](b, `document.querySelector("#asof").textContent`), "Sat 3 Oct, 22:00:00", "in the zone of the browser")
	})
	t.Run("filters", func(t *testing.T) {
		b.run(chromedp.SendKeys(chromedp.CSS(`input[type=search]`), "store"))
		b.until(rows+" === 6 && location.hash.includes('q=store')", "by a name")
		b.js(`const e = document.querySelector("input[type=search]"); e.value = ""; e.dispatchEvent(new Event("input"))`)
		b.until(rows+" === 9", "by none")
		b.run(chromedp.Click(chromedp.CSS(`[data-key=state-Failed]`)))
		b.until(rows+` === 1 && document.querySelector("[data-key=state-Failed]").getAttribute("aria-pressed") === "true"`, "by a state")
		require.Equal(t, "state-Failed", get[string](b, `document.activeElement.dataset.key`), "the focus stays")
		b.run(chromedp.NavigateBack())
		b.until(rows+" === 9", "back")
	})
	t.Run("by keyboard", func(t *testing.T) {
		require.Equal(t, get[int](b, `document.querySelectorAll("ul.machines").length`), get[int](b, `document.querySelectorAll("a.cell[tabindex='0']").length`), "one stop for each cluster")
		b.run(chromedp.Focus(chromedp.CSS("a.cell")), chromedp.KeyEvent(kb.ArrowRight))
		require.Equal(t, 1, get[int](b, `[...document.querySelectorAll("a.cell")].indexOf(document.activeElement)`))
		b.js(`[...document.querySelectorAll("a.cell")].find((a) => a.title.startsWith("prod-eu-worker-01")).focus()`)
		b.run(chromedp.KeyEvent(kb.Enter))
		b.until(`location.hash === "#/update/fleet/prod-eu-worker-01"`, "Enter opens the machine")
	})
	t.Run("one update", func(t *testing.T) {
		b.until(text+`.includes("Node being changed")`, "its steps")
		shown := get[string](b, text)
		for _, part := range []string{"5 of 8 steps", "/etc/containerd/config.toml", "InPlaceUpdateDrainSlow", "somebody had changed it on the node, too", "Sat 3 Oct, 21:57:00"} {
			require.Contains(t, shown, part)
		}
	})
	t.Run("the timeline", func(t *testing.T) {
		b.view("Timeline", `document.querySelectorAll(".lanes tbody").length === 3`)
		require.Positive(t, get[int](b, `document.querySelectorAll(".k-Open").length`))
		require.Positive(t, get[int](b, `document.querySelectorAll(".track .k-Excluded").length`))
		require.Equal(t, 2+1, get[int](b, `document.querySelectorAll(".track .k-Expected").length`), "of four one does not start before somebody does something")
		b.run(chromedp.Click(chromedp.CSS(`details[data-of=windows] > summary`)))
		b.until(`document.querySelector("details[data-of=windows]").innerText.includes("quarter close")`, "all of it is there as a list")
	})
	t.Run("policies", func(t *testing.T) {
		b.view("Policies", rows+" === 6")
		require.Contains(t, get[string](b, text), "namespaces tier=production")
		require.Contains(t, get[string](b, text), "can't be read")
	})
	t.Run("machines", func(t *testing.T) {
		b.view("Machines", rows+" === 52")
		require.Contains(t, get[string](b, text), "held by ana@example.com")
	})
	b.clean()
}

func TestNews(t *testing.T) {
	s := serve(t)
	b := open(t, s, desktop)
	b.until(`document.querySelector("#live").textContent === "live"`, "it listens to news")
	const hostile = `<img src=x onerror="alert(1)"><script>alert(2)</script>`
	b.view("Machines", rows+" === 52")
	// The server may watch only after the first change: change until it is seen.
	n := 0
	require.Eventually(t, func() bool {
		n++
		_, err := fmt.Fprintf(s.input, "fleet prod-us-worker-02 %s %d\n", hostile, n)
		return err == nil && get[bool](b, text+`.includes("onerror")`)
	}, patience, patience/100)
	require.Equal(t, 0, get[int](b, `document.querySelectorAll("main img, main script").length`), "texts are texts")
	b.js(`location.hash = "#/update/fleet/prod-us-worker-02"`)
	b.until(text+`.includes("◦ Failed (Unhealthy)")`, "what was seen is among the steps")
	b.clean()
}

func TestLargeFleets(t *testing.T) {
	b := open(t, serve(t, "--clusters", "600"), desktop)
	b.until(rows+" === 50", "a page of clusters")
	b.until(text+`.includes("18,000 machines in 600 clusters")`, "all are read")
	b.until(`document.querySelector("#loading").textContent === ""`, "the page says that all are")
	b.run(chromedp.Click(chromedp.CSS(`[data-key=page-Next]`)))
	b.until(text+`.includes("page 2 of 12")`, "the next page")
	b.clean()
}

// contrast returns the least contrast of texts on the background of their own.
const contrast = `(() => {
  const light = (c) => { const [r, g, b] = c.match(/[0-9.]+/g).map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  let least = 99;
  for (const e of document.querySelectorAll("[class*='s-'], a, .faint, td, th, button")) {
    let on = e;
    while (on && getComputedStyle(on).backgroundColor === "rgba(0, 0, 0, 0)") on = on.parentElement;
    if (!on || !e.innerText?.trim()) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(getComputedStyle(on).backgroundColor)];
    least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return least;
})()`

// wrong are what a screen reader would stumble on, or anybody.
const wrong = `[
  ...[...document.querySelectorAll("input, select")].filter((e) => !e.labels?.length && !e.getAttribute("aria-label")).map(() => "a field without a label"),
  ...[...document.querySelectorAll("img")].filter((e) => !e.hasAttribute("alt")).map(() => "an image without alt"),
  ...[...document.querySelectorAll("table")].filter((e) => !e.caption || !e.querySelector("th[scope]")).map(() => "a table without caption or headers"),
  ...[...document.querySelectorAll("a, button, summary")].filter((e) => !e.textContent.trim() && !e.getAttribute("aria-label")).map((e) => "no name: " + e.outerHTML),
  ...(document.body.innerText.match(/.*\b(undefined|NaN|Invalid Date|\[object).*/g) ?? []),
  ...(document.querySelectorAll("main").length === 1 && document.querySelectorAll("h1").length === 1 ? [] : ["one main, and one h1"]),
  ...[...document.querySelectorAll("[id]")].map((e) => e.id).filter((id, i, all) => all.indexOf(id) !== i).map((id) => "twice: " + id),
]`

func TestForEverybody(t *testing.T) {
	b := open(t, serve(t), desktop)
	for _, view := range []struct{ hash, until string }{
		{"#/", rows + " === 9"}, {"#/machines", rows + " === 52"}, {"#/timeline", `document.querySelectorAll(".lanes tbody").length === 3`}, {"#/policies", rows + " === 6"},
		{"#/update/fleet/prod-eu-worker-01", text + `.includes("Node being changed")`},
	} {
		b.js(`location.hash = "` + view.hash + `"`)
		b.until(view.until, view.hash)
		for _, as := range []look{desktop, phone, {desktop.width, desktop.height, true}, {phone.width, phone.height, true}} {
			t.Run(fmt.Sprint(view.hash, as), func(t *testing.T) {
				b.as(as)
				require.Empty(t, get[[]string](b, wrong))
				require.GreaterOrEqual(t, get[float64](b, contrast), 4.5)
				require.LessOrEqual(t, get[float64](b, `document.documentElement.scrollWidth`), float64(as.width), "nothing lies beside the page")
			})
		}
	}
	b.clean()
}

// most is how many bytes a screenshot has.
const most = 150 << 10

// TestScreenshots writes those of the docs, of a fleet, a time and a zone that are always the same.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		t.Skip("SCREENSHOTS names no directory to write them into")
	}
	b := open(t, serve(t), desktop)
	for _, shot := range []struct {
		name, hash, until string
		as                look
	}{
		{"ui-fleet", "#/", rows + " === 9", look{1280, 860, false}},
		{"ui-timeline", "#/timeline", `document.querySelectorAll(".lanes tbody").length === 3`, look{1280, 960, true}},
		{"ui-update", "#/update/fleet/prod-eu-worker-01", text + `.includes("Node being changed")`, look{1280, 900, false}},
		{"ui-narrow", "#/", rows + " === 9", look{390, 844, true}},
	} {
		b.as(shot.as)
		b.js(`location.hash = "` + shot.hash + `"`)
		b.until(shot.until, shot.name)
		b.until(`document.querySelector("#live").textContent === "live"`, "it listens to news")
		b.js(`document.activeElement.blur(); scrollTo(0, 0)`)
		png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		require.NoError(t, err)
		require.Less(t, len(png), most, shot.name)
		require.NoError(t, os.WriteFile(filepath.Join(dir, shot.name+".png"), png, 0o644))
	}
	b.clean()
}
