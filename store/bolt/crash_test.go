package bolt

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/proxy"
)

// The test binary is also the processes that are killed, starved and kept out: childVar says which, and the file is its
// first argument.
const childVar = "BOLT_TEST_CHILD"

func TestMain(m *testing.M) {
	children := map[string]func(path string, args []string) error{"write": childWrites, "starve": childStarves, "hold": childHolds}
	child, ok := children[os.Getenv(childVar)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := child(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// startChild starts a child and returns its output. It is killed when the test ends.
func startChild(t *testing.T, name, path string, args ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, append([]string{path}, args...)...)
	cmd.Env = append(os.Environ(), childVar+"="+name)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// kills is how often a process is killed.
func kills(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("KILLS"))
	if err != nil {
		return 36
	}
	return n
}

// step makes the n-th of an endless row of writes, which depends on n alone. Names come and go, and records grow and
// shrink.
func step(s *Store, n int) error {
	k, round := key(n%7), n/7
	p, err := s.Get(bg(), k)
	switch {
	case round%5 == 4 && n%2 == 0:
		return s.Delete(bg(), k)
	case round%5 == 0 || errors.Is(err, proxy.ErrNotFound):
		d := proxy.Declaration{
			Spec:        proxy.Spec{Provider: "lab", CloudInit: &proxy.CloudInit{Inline: strings.Repeat("#", 1+n*937%9000)}},
			Annotations: map[string]string{"n": fmt.Sprint(n)},
		}
		_, err = s.Put(bg(), k, d, "test")
		return err
	case err != nil:
		return err
	}
	p.Status.LatencyMillis = int64(n)
	_, err = s.UpdateStatus(bg(), p)
	return err
}

// childWrites makes the steps from a number on, and says of each when it is acknowledged.
func childWrites(path string, args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	s, err := Open(Config{Path: path, Fleet: "test", Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	for ; ; n++ {
		if err := step(s, n); err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// content is what a store holds, without versions, which differ from process to process.
func content(t *testing.T, s *Store) string {
	t.Helper()
	all, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, p := range all {
		inline := 0
		if p.Spec.CloudInit != nil {
			inline = len(p.Spec.CloudInit.Inline)
		}
		fmt.Fprintln(&b, p.Key, p.UID, p.Generation, p.Annotations, inline, p.Status.LatencyMillis)
	}
	return b.String()
}

// A process is killed at any moment, also while it makes the file; the next one finds all that was acknowledged, and at
// most the write that was under way besides.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	model := openTest(t, Config{Path: filepath.Join(t.TempDir(), "model.db"), Fleet: "test"})
	random := rand.New(rand.NewPCG(3, 4))
	done, under := 0, 0 // steps that are in the file, and kills that left a step more than was acknowledged
	for kill := range kills(t) {
		acknowledged := writeAndKill(t, random, path, done)
		s, err := Open(Config{Path: path, Fleet: "test"})
		if err != nil {
			t.Fatalf("after kill %d: %v", kill, err)
		}
		got := content(t, s)
		closed(t, s)
		for ; done < acknowledged; done++ {
			if err := step(model, done); err != nil {
				t.Fatal(err)
			}
		}
		want := content(t, model)
		if got == want {
			continue
		}
		if err := step(model, done); err != nil {
			t.Fatal(err)
		}
		done++
		under++
		if diff := cmp.Diff(content(t, model), got); diff != "" {
			t.Fatalf("after kill %d the file holds neither the %d steps that were acknowledged nor one more:\n%s\nagainst the former:\n%s",
				kill, acknowledged, diff, cmp.Diff(want, got))
		}
	}
	if done == 0 {
		t.Error("nothing was ever written")
	}
	t.Logf("%d steps; %d kills came between a write and its acknowledgement", done, under)
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		if f.Name() != "state.db" && !strings.HasPrefix(f.Name(), "state.db.new-") {
			t.Errorf("%s was left behind", f.Name())
		}
	}
}

// A process that is killed while it makes the file leaves none, or a whole one.
func TestKilledWhileItMakesTheFile(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	start := time.Now()
	first, lines := startChild(t, "hold", filepath.Join(t.TempDir(), "state.db"))
	if !lines.Scan() {
		t.Fatal("the child does not open a new file")
	}
	usual := time.Since(start)
	_ = first.Wait()
	made := 0
	for kill := range kills(t) {
		path := filepath.Join(t.TempDir(), "state.db")
		child, _ := startChild(t, "hold", path)
		<-time.After(time.Duration(random.Int64N(int64(usual * 3 / 2))))
		_ = child.Process.Kill()
		_ = child.Wait()
		if _, err := os.Stat(path); err == nil {
			made++
		}
		s, err := Open(Config{Path: path})
		if err != nil {
			t.Fatalf("after kill %d: %v", kill, err)
		}
		if all := closed(t, s); len(all) != 0 {
			t.Fatalf("after kill %d the new file holds %v", kill, all)
		}
	}
	t.Logf("%d of %d files were there when the process was killed", made, kills(t))
}

// writeAndKill lets a child make steps, kills it, and returns how many are acknowledged then.
func writeAndKill(t *testing.T, random *rand.Rand, path string, from int) int {
	t.Helper()
	child, lines := startChild(t, "write", path, strconv.Itoa(from))
	if random.IntN(4) > 0 { // else it is killed while it starts
		for range 1 + random.IntN(30) {
			if !lines.Scan() {
				t.Fatalf("the child ended by itself: %v", child.Wait())
			}
			from = acknowledgedBy(t, lines, from)
		}
	}
	kill := time.After(time.Duration(random.IntN(int(20 * time.Millisecond))))
	go func() {
		<-kill
		_ = child.Process.Kill()
	}()
	for lines.Scan() {
		from = acknowledgedBy(t, lines, from)
	}
	_ = child.Wait() // which says that it was killed
	return from
}

func acknowledgedBy(t *testing.T, lines *bufio.Scanner, from int) int {
	t.Helper()
	n, err := strconv.Atoi(lines.Text())
	if err != nil || n != from {
		t.Fatalf("the child says %q, want %d", lines.Text(), from)
	}
	return n + 1
}

// childStarves writes until the file may not grow, and checks that the store is well before, then and after.
func childStarves(path string, _ []string) error {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := Open(Config{Path: path})
	if err != nil {
		return err
	}
	limit := syscall.Rlimit{}
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	free := limit.Cur
	limit.Cur = 256 << 10
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	big := proxy.Declaration{Spec: proxy.Spec{Provider: "lab", CloudInit: &proxy.CloudInit{Inline: strings.Repeat("#", 20_000)}}}
	n := 0
	for ; err == nil; n++ {
		if n > 100 {
			return errors.New("the disk never was full")
		}
		_, err = s.Put(bg(), key(n), big, "test")
	}
	fmt.Println(err)
	if _, err := s.Get(bg(), key(n-1)); !errors.Is(err, proxy.ErrNotFound) {
		return fmt.Errorf("the record whose write failed: %w", err)
	}
	if _, err := s.Put(bg(), key(n-1), big, "test"); err == nil {
		return errors.New("a second write succeeded")
	}
	limit.Cur = free
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	if _, err := s.Put(bg(), key(n), big, "test"); err != nil {
		return fmt.Errorf("after there was space again: %w", err)
	}
	fmt.Println(n)
	return s.Close()
}

func TestDiskFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	child, lines := startChild(t, "starve", path)
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
	}
	if err := child.Wait(); err != nil || len(said) != 2 {
		t.Fatalf("the child: %v, %q", err, said)
	}
	wantError(t, errors.New(said[0]), "file too large")
	n, err := strconv.Atoi(said[1])
	if err != nil {
		t.Fatal(err)
	}
	all := closed(t, openTest(t, Config{Path: path}))
	if len(all) != n { // 0 to n-2, and n
		t.Errorf("%d records are in the file, want %d", len(all), n)
	}
}

// childHolds opens the file, says so, and keeps it until its input ends.
func childHolds(path string, _ []string) error {
	s, err := Open(Config{Path: path})
	if err != nil {
		return err
	}
	fmt.Println("open")
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, s.Close())
}

func TestSecondProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	holder := exec.CommandContext(t.Context(), self, path)
	holder.Env = append(os.Environ(), childVar+"=hold")
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "open\n" {
		t.Fatalf("the holder says %q, %v", line, err)
	}
	start := time.Now()
	_, err = Open(Config{Path: path})
	wantError(t, err, path, "in use by another process")
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("it took %v to say so", d)
	}
	if err := errors.Join(in.Close(), holder.Wait()); err != nil {
		t.Fatal(err)
	}
	closed(t, openTest(t, Config{Path: path}))
}

// Of processes that make the file at once each either has it alone or is kept out, and all see one fleet.
func TestMadeByManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	type result struct {
		fleet string
		err   error
	}
	results := make(chan result)
	const n = 8
	for range n {
		go func() {
			s, err := Open(Config{Path: path, Timeout: time.Minute})
			if err != nil {
				results <- result{err: err}
				return
			}
			results <- result{s.Fleet(), s.Close()}
		}()
	}
	fleets := map[string]bool{}
	for range n {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		fleets[r.fleet] = true
	}
	if len(fleets) != 1 {
		t.Errorf("they saw fleets %v", fleets)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("there is something beside the file: %v, %v", left, err)
	}
}
