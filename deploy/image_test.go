package deploy

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// buildah builds and runs images without a daemon, in folders of a test.
type buildah struct {
	*testing.T
	storage []string // flags
}

func newBuildah(t *testing.T) *buildah {
	t.Helper()
	_, err := exec.LookPath("buildah")
	switch {
	case err == nil && os.Geteuid() == 0:
	case os.Getenv("CI") == "true":
		t.Fatal("an image needs root, and buildah: hack/install-test-deps.sh installs it", err)
	default:
		t.Skip("an image needs root, and buildah: hack/install-test-deps.sh installs it")
	}
	dir := t.TempDir()
	return &buildah{t, []string{"--root=" + filepath.Join(dir, "root"), "--runroot=" + filepath.Join(dir, "run"), "--storage-driver=vfs"}}
}

// command returns a command that runs as root and needs no namespaces.
func (b *buildah) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.WaitDelay = module, time.Second
	cmd.Env = append(os.Environ(), "BUILDAH_ISOLATION=chroot", "_CONTAINERS_USERNS_CONFIGURED=1")
	return cmd
}

// run returns what a command of buildah prints.
func (b *buildah) run(args ...string) string {
	b.Helper()
	return output(b.T, b.command(withTimeout(b.T), "buildah", append(b.storage, args...)...))
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, out, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// The image has the program and the certificates that it trusts, and nothing else; it runs as nobody in particular, and starts.
func TestImage(t *testing.T) {
	t.Parallel()
	b := newBuildah(t)
	output(t, b.command(withTimeout(t), "make", "image", "IMAGE=proxyfleet:test", "BUILDER=buildah "+strings.Join(b.storage, " ")))

	var image struct {
		OCIv1 struct {
			Config struct {
				User       string
				Entrypoint []string
				Cmd        []string
			}
		}
	}
	if err := json.Unmarshal([]byte(b.run("inspect", "--type=image", "proxyfleet:test")), &image); err != nil {
		t.Fatal(err)
	}
	config := image.OCIv1.Config
	if config.User != "65532:65532" || !cmp.Equal(config.Entrypoint, []string{"/proxyfleet"}) || config.Cmd != nil {
		t.Errorf("the image is run as %+v", config)
	}

	container := b.run("from", "--pull-never", "proxyfleet:test")
	files, size := contents(t, b.run("mount", container))
	if diff := cmp.Diff([]string{"etc/ssl/certs/ca-certificates.crt", "proxyfleet"}, files); diff != "" {
		t.Errorf("files in the image (-want +got):\n%s", diff)
	}
	if size > 100<<20 {
		t.Errorf("the image has %d MB", size>>20)
	}
	b.run("umount", container)
	if version := b.run("run", container, "--", "/proxyfleet", "version"); !strings.HasPrefix(version, "proxyfleet ") {
		t.Errorf("the program says %q", version)
	}
}

// contents are the files below a folder, and how many bytes they have. Everybody must be able to read them.
func contents(t *testing.T, dir string) (files []string, size int64) {
	t.Helper()
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o444 != 0o444 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		files, size = append(files, path), size+info.Size()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, size
}
