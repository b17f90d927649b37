package discovery_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// browser is a Chromium without a screen, driven by the WebDriver protocol. Whatever it cannot do fails the test.
type browser struct {
	t       *testing.T
	session string // its URL at the driver
}

// startBrowser starts one that ends with the test.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	chromium := browserProgram(t, "chromium", "chromium")
	driver := exec.Command(browserProgram(t, "chromedriver", "chromium-driver"), "--port=0")
	driver.Env = append(os.Environ(), "HOME="+t.TempDir())
	output, err := driver.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = driver.Process.Kill()
		_ = driver.Wait()
	})
	b := &browser{t: t, session: driverURL(t, output) + "/session"}
	arguments := []string{"--headless=new", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"}
	if os.Geteuid() == 0 {
		arguments = append(arguments, "--no-sandbox") // which root cannot have
	}
	var made struct{ SessionID string }
	b.do("POST", "", map[string]any{"capabilities": map[string]any{"alwaysMatch": map[string]any{
		"timeouts":           map[string]any{"script": 30_000, "pageLoad": 30_000},
		"goog:loggingPrefs":  map[string]any{"browser": "ALL", "performance": "ALL"},
		"goog:chromeOptions": map[string]any{"binary": chromium, "args": arguments},
	}}}, &made)
	b.session += "/" + made.SessionID
	t.Cleanup(func() { b.do("DELETE", "", nil, nil) })
	return b
}

// browserProgram returns the path of a program. A test without it is skipped, but not in CI, where all are installed.
func browserProgram(t *testing.T, name, debianPackage string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path
	case os.Getenv("CI") == "true":
		t.Fatalf("%s is missing: install the package %s", name, debianPackage)
	default:
		t.Skipf("%s is missing: install the package %s to run this test", name, debianPackage)
	}
	return ""
}

// driverURL waits until a driver says where it listens.
func driverURL(t *testing.T, output io.Reader) string {
	t.Helper()
	port := regexp.MustCompile(`started successfully on port (\d+)`)
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if found := port.FindStringSubmatch(lines.Text()); found != nil {
			go io.Copy(io.Discard, output) // until the driver ends
			return "http://127.0.0.1:" + found[1]
		}
	}
	t.Fatalf("the driver ended before it listened: %v", lines.Err())
	return ""
}

// do sends a command and reads its value.
func (b *browser) do(method, command string, body, value any) {
	b.t.Helper()
	content := []byte("{}")
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			b.t.Fatal(err)
		}
	}
	r, err := http.NewRequest(method, b.session+command, bytes.NewReader(content)) // also when the context of the test has ended
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := (&http.Client{Timeout: time.Minute}).Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer := struct{ Value json.RawMessage }{}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		b.t.Fatalf("%s %s: %s %v: %.1000s", method, command, resp.Status, err, answer.Value)
	}
	if value == nil {
		return
	}
	if err := json.Unmarshal(answer.Value, value); err != nil {
		b.t.Fatalf("%s %s: %v: %.1000s", method, command, err, answer.Value)
	}
}

func (b *browser) open(url string) {
	b.t.Helper()
	b.do("POST", "/url", map[string]any{"url": url}, nil)
}

// find returns the path of the commands for an element.
func (b *browser) find(selector string) string {
	b.t.Helper()
	var element map[string]string
	b.do("POST", "/element", map[string]any{"using": "css selector", "value": selector}, &element)
	for _, id := range element {
		return "/element/" + id
	}
	b.t.Fatalf("no element is %s", selector)
	return ""
}

func (b *browser) click(selector string) {
	b.t.Helper()
	b.do("POST", b.find(selector)+"/click", nil, nil)
}

func (b *browser) typeInto(selector, text string) {
	b.t.Helper()
	b.do("POST", b.find(selector)+"/value", map[string]any{"text": text}, nil)
}

// text is what somebody reads of an element.
func (b *browser) text(selector string) (text string) {
	b.t.Helper()
	b.do("GET", b.find(selector)+"/text", nil, &text)
	return text
}

// eval reads the value of an expression of the page.
func (b *browser) eval(expression string, value any) {
	b.t.Helper()
	b.do("POST", "/execute/sync", map[string]any{"script": "return " + expression, "args": []any{}}, value)
}

// await waits until an expression of the page is true.
func (b *browser) await(expression string) {
	b.t.Helper()
	script := `const done = arguments[0];
		const look = () => { if (` + expression + `) done(true); };
		new MutationObserver(look).observe(document, {subtree: true, childList: true, characterData: true, attributes: true});
		look();`
	b.do("POST", "/execute/async", map[string]any{"script": script, "args": []any{}}, nil)
}

// devtools sends a command of the Chrome DevTools protocol.
func (b *browser) devtools(command string, parameters map[string]any, value any) {
	b.t.Helper()
	b.do("POST", "/goog/cdp/execute", map[string]any{"cmd": command, "params": parameters}, value)
}

// view sets the size of the window in CSS pixels, and the colours that its user prefers.
func (b *browser) view(width, height int, colours string) {
	b.t.Helper()
	b.devtools("Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.devtools("Emulation.setEmulatedMedia",
		map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": colours}}}, nil)
}

// screenshot leaves a picture of the window where go test -artifacts keeps it.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	var picture struct{ Data string }
	b.devtools("Page.captureScreenshot", map[string]any{"format": "png"}, &picture)
	png, err := base64.StdEncoding.DecodeString(picture.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.t.ArtifactDir(), name+".png"), png, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// logged returns the messages of a log since it was read last.
func (b *browser) logged(log string) []string {
	b.t.Helper()
	var entries []struct{ Level, Message string }
	b.do("POST", "/se/log", map[string]any{"type": log}, &entries)
	var messages []string
	for _, e := range entries {
		messages = append(messages, fmt.Sprintf("%s %s", e.Level, e.Message))
	}
	return messages
}
