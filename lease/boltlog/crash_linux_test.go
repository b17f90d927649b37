package boltlog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/lease"
)

// The test binary is also the processes that are traced and starved: childVar says which, and the file is its first argument.
const childVar = "BOLTLOG_TEST_CHILD"

func TestMain(m *testing.M) {
	children := map[string]func(path string, args []string) error{"lease": childLeases, "starve": childStarves}
	child, ok := children[os.Getenv(childVar)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := child(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func openStore(path string) (*Log, *lease.Memory, error) {
	l, err := Open(Config{Path: path})
	if err != nil {
		return nil, nil, err
	}
	store, err := lease.NewMemory(lease.Config{Log: l})
	if err != nil {
		return nil, nil, err
	}
	for n := range 3 {
		store.Set(lease.Candidate{Key: fmt.Sprint("default/", n), MaxLeases: capacity, Healthy: true})
	}
	return l, store, nil
}

// childLeases lets four crawlers make steps. Each says what it is about to do and what was confirmed, a line at a time.
func childLeases(path string, args []string) error {
	steps, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	l, store, err := openStore(path)
	if err != nil {
		return err
	}
	var crawlers sync.WaitGroup
	for n := range 4 {
		crawlers.Go(func() { childCrawls(store, rand.New(rand.NewPCG(uint64(n), 7)), n, steps/4) })
	}
	crawlers.Wait()
	return l.Close()
}

const capacity = 3

func childCrawls(store lease.Store, random *rand.Rand, number, steps int) {
	ctx := context.Background()
	say := func(format string, args ...any) { _, _ = os.Stdout.WriteString(fmt.Sprintf(format, args...) + "\n") }
	var mine []lease.Lease
	for n := range steps {
		if len(mine) == 0 || len(mine) < 3 && random.IntN(2) == 0 {
			g, err := store.Acquire(ctx, lease.Request{Target: fmt.Sprint(number, "/", n), TTL: time.Hour, ID: fmt.Sprint(number, "/", n)})
			if err == nil {
				mine = append(mine, g.Leases[0])
				say("open %s %d", g.Leases[0].ID, g.Leases[0].Expires.UnixNano())
			}
			continue
		}
		at := random.IntN(len(mine))
		switch l := mine[at]; random.IntN(4) {
		case 0:
			say("change %s", l.ID)
			if l, err := store.Renew(ctx, l.ID, time.Hour); err == nil {
				say("open %s %d", l.ID, l.Expires.UnixNano())
			}
		case 1:
			if store.Report(ctx, l.ID, lease.Report{Outcome: lease.Banned}) == nil {
				say("cool %s", l.Target)
			}
		default:
			say("change %s", l.ID)
			if store.Release(ctx, l.ID) == nil {
				say("over %s", l.ID)
			}
			mine = append(mine[:at], mine[at+1:]...)
		}
	}
}

// disk is a file as it is after a loss of power: what was synced is there, and of what was written since some may be.
type disk struct {
	synced  []byte
	written []write
}

// write is one that was not synced yet.
type write struct {
	data []byte
	at   int // -1: the file gets the length
	size int
}

func (w write) apply(file []byte) []byte {
	if w.at < 0 {
		return append(file, make([]byte, max(0, w.size-len(file)))...)[:w.size]
	}
	file = append(file, make([]byte, max(0, w.at+len(w.data)-len(file)))...)
	copy(file[w.at:], w.data)
	return file
}

// sync makes the first n writes durable.
func (d *disk) sync(n int) {
	for _, w := range d.written[:n] {
		d.synced = w.apply(d.synced)
	}
	d.written = d.written[n:]
}

// image returns what may be left: of each write that was not synced all, nothing, or some sectors, as keep says.
func (d *disk) image(keep func() bool) []byte {
	file := append([]byte(nil), d.synced...)
	const sector = 512
	for _, w := range d.written {
		if w.at < 0 {
			if keep() {
				file = w.apply(file)
			}
			continue
		}
		for from := 0; from < len(w.data); from += sector {
			if keep() {
				file = write{data: w.data[from:min(from+sector, len(w.data))], at: w.at + from}.apply(file)
			}
		}
	}
	return file
}

// knowledge is what callers know of leases and cooldowns.
type knowledge struct {
	ever map[string]bool  // every lease that was ever open
	open map[string]int64 // by ID, when it expires; of those of which that is certain
	over map[string]bool  // certainly
	cool map[string]bool  // by target
}

func (k *knowledge) hear(line string) {
	words := strings.Fields(line)
	switch words[0] {
	case "open":
		expires, _ := strconv.ParseInt(words[2], 10, 64)
		k.open[words[1]] = expires
	case "change":
		delete(k.open, words[1])
	case "over":
		k.over[words[1]] = true
	case "cool":
		k.cool[words[1]] = true
	}
}

// judge opens what is left and says what is wrong with it.
func (k *knowledge) judge(path string, image []byte) (problems []string) {
	if err := os.WriteFile(path, image, 0o600); err != nil {
		return []string{err.Error()}
	}
	l, err := Open(Config{Path: path})
	if err != nil {
		return []string{err.Error()}
	}
	defer l.Close()
	open, cool, held := map[string]int64{}, map[string]bool{}, map[string]int{}
	err = l.Load(func(r lease.Record) error {
		switch {
		case r.Lease != "" && r.Ended.IsZero():
			open[r.Lease] = r.Expires.UnixNano()
			held[r.Key]++
		case r.Lease == "":
			cool[r.Target] = true
		}
		return nil
	})
	if err != nil {
		return []string{err.Error()}
	}
	for id, expires := range k.open {
		if open[id] != expires {
			problems = append(problems, fmt.Sprintf("lease %s should be open until %d, and is until %d", id, expires, open[id]))
		}
	}
	for id := range open {
		if k.over[id] || !k.ever[id] {
			problems = append(problems, fmt.Sprintf("lease %s is open, and was ended or never granted", id))
		}
	}
	for target := range k.cool {
		if !cool[target] {
			problems = append(problems, "the cooldown for "+target+" is lost")
		}
	}
	for key, n := range held {
		if n > capacity {
			problems = append(problems, fmt.Sprintf("%s has %d leases", key, n))
		}
	}
	return problems
}

// TestPowerLoss: after each write and each sync of a process that leases, the power may fail. Whatever is left then of what
// was not synced, no lease that a caller was told of is lost, none that was ended is back, and no proxy has too many.
func TestPowerLoss(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("strace is not installed: hack/install-test-deps.sh")
	}
	steps := 72
	if n, err := strconv.Atoi(os.Getenv("KILLS")); err == nil {
		steps = 2 * n
	}
	path := newPath(t)
	closed(t, openTest(t, path))
	begin, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	child := exec.CommandContext(t.Context(), strace, "-f", "-y", "-xx", "-s", "100000000", "-o", trace,
		"-e", "trace=pwrite64,fdatasync,fsync,ftruncate,write,rename,renameat,renameat2,msync", self(t), path, strconv.Itoa(steps))
	child.Env = append(os.Environ(), childVar+"=lease")
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	events := readTrace(t, trace, path)
	k := &knowledge{ever: map[string]bool{}, open: map[string]int64{}, over: map[string]bool{}, cool: map[string]bool{}}
	for _, e := range events {
		if words := strings.Fields(e.said); len(words) > 0 && words[0] == "open" {
			k.ever[words[1]] = true
		}
	}
	d := &disk{synced: begin}
	random := rand.New(rand.NewPCG(1, 1))
	image := newPath(t)
	cuts, syncs := 0, 0
	for i, e := range events {
		switch {
		case e.said != "":
			k.hear(e.said)
		case e.synced > 0 || e.sync:
			d.sync(e.synced)
			syncs++
		default:
			d.written = append(d.written, e.write)
		}
		for how, keep := range map[string]func() bool{
			"nothing that was not synced": func() bool { return false },
			"all":                         func() bool { return true },
			"half":                        func() bool { return random.IntN(2) == 0 },
		} {
			if e.said != "" && how != "nothing that was not synced" {
				continue
			}
			cuts++
			if problems := k.judge(image, d.image(keep)); len(problems) > 0 {
				t.Fatalf("event %d of %d, with %s: %s", i, len(events), how, strings.Join(problems, "\n"))
			}
		}
	}
	if len(k.ever) < steps/10 || syncs < steps/4 {
		t.Errorf("only %d leases were granted, with %d syncs", len(k.ever), syncs)
	}
	t.Logf("%d leases, %d syncs, %d cuts", len(k.ever), syncs, cuts)
}

// event is something that the process did to its file, or said.
type event struct {
	write
	sync   bool
	synced int // how many of the writes that were not synced before are now
	said   string
}

var call = regexp.MustCompile(`^(\d+) +(\w+)\((\d+)<([^>]*)>(?:, (.*?))?(\) += (-?\d+).*| <unfinished \.\.\.>)$`)
var resumed = regexp.MustCompile(`^(\d+) +<\.\.\. (\w+) resumed>.*= (-?\d+)`)

// readTrace reads what strace has seen, in order. What a process says counts from when it begins to, a sync from its end.
func readTrace(t *testing.T, trace, path string) (events []event) {
	t.Helper()
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<26)
	written, begun := 0, map[string]int{} // by thread, how many writes there were when its sync began
	synced := func(n int) {
		written -= n
		events = append(events, event{sync: true, synced: n})
	}
	for lines.Scan() {
		if m := resumed.FindStringSubmatch(lines.Text()); m != nil {
			if n, ok := begun[m[1]]; ok && strings.HasSuffix(m[2], "sync") {
				delete(begun, m[1])
				synced(n)
			}
			continue
		}
		m := call.FindStringSubmatch(lines.Text())
		if m == nil {
			if strings.Contains(lines.Text(), "exited") || strings.Contains(lines.Text(), "SIG") {
				continue
			}
			t.Fatalf("what is %.200q?", lines.Text())
		}
		file := string(unquote(t, m[4]))
		switch args := strings.Split(m[5], ", "); {
		case m[2] == "write" && m[3] == "1":
			events = append(events, event{said: string(unquote(t, args[0]))})
		case m[2] == "write" && file != path: // wakes another thread
		case file != path:
			t.Fatalf("%s of %s", m[2], file)
		case m[2] == "pwrite64":
			at, err := strconv.Atoi(args[2])
			if err != nil {
				t.Fatal(err)
			}
			written++
			events = append(events, event{write: write{data: unquote(t, args[0]), at: at}})
		case m[2] == "ftruncate":
			size, err := strconv.Atoi(args[0])
			if err != nil {
				t.Fatal(err)
			}
			written++
			events = append(events, event{write: write{at: -1, size: size}})
		case m[7] == "0":
			synced(written)
		case m[7] == "":
			begun[m[1]] = written
		default:
			t.Fatalf("%s fails: %s", m[2], m[7])
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return events
}

// unquote reads a text in which strace may have written bytes as \x..
func unquote(t *testing.T, s string) []byte {
	t.Helper()
	u, err := strconv.Unquote(`"` + strings.Trim(s, `"`) + `"`)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(u)
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// childStarves leases until the file may not grow, and says what it hears then.
func childStarves(path string, _ []string) error {
	signal.Ignore(syscall.SIGXFSZ)
	l, store, err := openStore(path)
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
	ctx := context.Background()
	for n := 0; err == nil; n++ {
		if n > 100 {
			return errors.New("the disk never was full")
		}
		var g lease.Grant
		if g, err = store.Acquire(ctx, lease.Request{Target: strings.Repeat("x", 20_000)}); err != nil {
			break
		}
		fmt.Println("granted", g.Leases[0].ID)
		err = store.Release(ctx, g.Leases[0].ID)
	}
	if !errors.Is(err, lease.ErrNotReady) {
		return err
	}
	fmt.Println(err)
	limit.Cur = free
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	if _, err := store.Acquire(ctx, lease.Request{}); !errors.Is(err, lease.ErrNotReady) {
		return fmt.Errorf("a store whose log has failed goes on: %w", err)
	}
	<-l.Failed()
	if err := l.Close(); err == nil {
		return errors.New("Close says that all is well")
	}
	return nil
}

// TestDiskFull: a store whose disk is full says so and ends; the next one knows all that was told.
func TestDiskFull(t *testing.T) {
	path := newPath(t)
	child := exec.CommandContext(t.Context(), self(t), path)
	child.Env = append(os.Environ(), childVar+"=starve")
	child.Stderr = os.Stderr
	out, err := child.Output()
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Split(strings.TrimSpace(string(out)), "\n")
	wantError(t, errors.New(said[len(said)-1]), "the store does not serve leases now", "lease file "+path, "file too large")
	all := map[string]bool{}
	for _, r := range kept(t, openTest(t, path)) {
		all[r.Lease] = true
	}
	for _, line := range said[:len(said)-1] {
		if !all[strings.TrimPrefix(line, "granted ")] {
			t.Errorf("lost: %s", line)
		}
	}
}
