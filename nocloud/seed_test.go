package nocloud_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kdomanski/iso9660"

	"github.com/proxyfleet/fleet/nocloud"
	"github.com/proxyfleet/fleet/secret"
)

// program returns the path of a program. A test without it is skipped, but not in CI, where all are installed.
func program(t *testing.T, name, debianPackage string) string {
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

// documents are user-data that a careless writer would change.
var documents = map[string]string{
	"empty":        "",
	"no last line": "#cloud-config\nruncmd: [true]",
	"CRLF":         "#!/bin/sh\r\necho hello\r\n",
	"not ASCII":    "#cloud-config\nwrite_files: [{path: /etc/motd, content: \"grüße, 你好, 🦊\"}]\n",
	"binary":       "\x1f\x8b\x08\x00\xff\xfe\x00\x01",
	"large":        "#!/bin/sh\n" + strings.Repeat("# 0123456789 abcdefghijklmnopqrstuvwxyz\n", 50_000),
	"one sector":   "#!/bin/sh\n" + strings.Repeat("#", 2048-len("#!/bin/sh\n")),
}

func build(t *testing.T, s nocloud.Seed) []byte {
	t.Helper()
	image, err := s.ISO()
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// files reads a disk back.
func files(t *testing.T, image []byte) map[string]string {
	t.Helper()
	disk, err := iso9660.OpenImage(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	root, err := disk.RootDir()
	if err != nil {
		t.Fatal(err)
	}
	children, err := root.GetChildren()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, child := range children {
		content, err := io.ReadAll(child.Reader())
		if err != nil {
			t.Fatal(err)
		}
		found[child.Name()] = string(content)
	}
	return found
}

func TestSeedHoldsDocumentsUnchanged(t *testing.T) {
	for name, document := range documents {
		t.Run(name, func(t *testing.T) {
			seed := nocloud.Seed{InstanceID: "i-1", Hostname: "proxy-1", UserData: secret.New(document),
				VendorData: secret.New(document), NetworkConfig: document}
			want := map[string]string{"meta-data": "instance-id: \"i-1\"\nlocal-hostname: \"proxy-1\"\n", "user-data": document}
			if document != "" {
				want["vendor-data"], want["network-config"] = document, document
			}
			if diff := cmp.Diff(want, files(t, build(t, seed))); diff != "" {
				t.Errorf("files of the disk (-want +got):\n%s", diff)
			}
		})
	}
}

// Another reader than the one of the library that wrote the disk, and one that C programs use.
func TestSeedIsReadByOthers(t *testing.T) {
	isoinfo := program(t, "isoinfo", "genisoimage")
	document := documents["large"]
	path := filepath.Join(t.TempDir(), "seed.iso")
	if err := os.WriteFile(path, build(t, nocloud.Seed{InstanceID: "i-1", UserData: secret.New(document)}), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := exec.CommandContext(t.Context(), isoinfo, "-i", path, "-x", "/user-data;1").Output()
	if err != nil || string(got) != document {
		t.Errorf("isoinfo reads %d bytes of user-data, %v; want the %d that were written", len(got), err, len(document))
	}
	described, err := exec.CommandContext(t.Context(), isoinfo, "-i", path, "-d").Output()
	if err != nil || !strings.Contains(string(described), "Volume id: cidata\n") {
		t.Errorf("isoinfo says, %v:\n%s\nwant the volume id cidata", err, described)
	}
}

func TestSeedIsDeterministic(t *testing.T) {
	seed := nocloud.Seed{InstanceID: "i-1", UserData: secret.New("#cloud-config\n"), VendorData: secret.New("#!/bin/sh\n")}
	first := build(t, seed)
	t.Setenv("TMPDIR", t.TempDir()) // where it is built must not show
	if !bytes.Equal(first, build(t, seed)) {
		t.Error("two disks of one seed differ")
	}
	const descriptor = 16 * 2048
	for name, moment := range map[string][]byte{
		"creation": first[descriptor+813:], "modification": first[descriptor+830:], "expiration": first[descriptor+847:], "effective": first[descriptor+864:],
	} {
		if got := moment[:17]; string(got) != strings.Repeat("0", 16)+"\x00" {
			t.Errorf("the %s time is %q, want unspecified", name, got)
		}
	}
	if got := strings.TrimRight(string(first[descriptor+8:descriptor+40]), " "); got != "" {
		t.Errorf("the disk names the system %q that it was made on", got)
	}
	if got := binary.LittleEndian.Uint32(first[descriptor+80:]); int(got)*2048 != len(first) {
		t.Errorf("the disk has %d bytes and says that it has %d sectors", len(first), got)
	}
}

func TestSeedLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	build(t, nocloud.Seed{InstanceID: "i-1", UserData: secret.New("hunter2")})
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v, %v; want nothing", left, err)
	}
}

func TestSeedProblems(t *testing.T) {
	for _, c := range []struct {
		name string
		seed nocloud.Seed
		want []string
	}{
		{"empty", nocloud.Seed{}, []string{`InstanceID must be 1 to 63 letters, digits, '-', '_' and '.', not ""`}},
		{"both", nocloud.Seed{InstanceID: "a\nb", Hostname: "a.b"}, []string{`not "a\nb"`, `Hostname must be a DNS label, not "a.b"`}},
		{"hyphen", nocloud.Seed{InstanceID: "i-1", Hostname: "a-"}, []string{`Hostname must be a DNS label, not "a-"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.seed.ISO()
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
}
