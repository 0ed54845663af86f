package shelltools

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestSwappedWhileRunning lets a folder, or a file, flicker between the real one and a link to another one of the
// thread while calls open it: they get the real one or none.
func TestSwappedWhileRunning(t *testing.T) {
	for name, flickering := range map[string]string{"folder": "dir", "file": "dir/file"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put("dir/file", "planned")
			b.put("protected/file", "secret")
			b.put("dir/protected", "secret")
			b.link("protected", filepath.Join(filepath.Dir(flickering), "evil"))
			stop := make(chan struct{})
			var flicker sync.WaitGroup
			flicker.Go(func() { b.flicker(flickering, stop) })
			f, err := openFolder(b.cwd)
			require.NoError(t, err)
			reached := 0
			for range 3000 {
				p, err := f.open(b.path("dir/file"), false)
				if err != nil {
					continue
				}
				sum, err := p.digest()
				p.close()
				if err == nil && sum != absent {
					reached++
					require.Equal(t, digest([]byte("planned")), sum)
				}
			}
			close(stop)
			flicker.Wait()
			require.Positive(t, reached)
		})
	}
}

// flicker exchanges what has that name with the link "evil" beside it, at once, until stop is closed.
func (b *bench) flicker(name string, stop <-chan struct{}) {
	name = b.path(name)
	evil := filepath.Join(filepath.Dir(name), "evil")
	for {
		select {
		case <-stop:
			return
		default:
			_ = unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, evil, unix.RENAME_EXCHANGE)
		}
	}
}

// TestDurable watches the system calls of write: the content is on disk before it gets its name, and the name before
// the call is done.
func TestDurable(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	b := newBench(t)
	b.put("f", "old")
	log := filepath.Join(b.outside(), "log")
	traced := exec.Command(strace, "-f", "-y", "-o", log, "-e", "trace=fsync,rename,renameat,renameat2", "-e", "signal=none",
		os.Args[0], writeOnce, b.cwd)
	if out, err := traced.CombinedOutput(); err != nil {
		t.Skipf("strace does not work here: %v: %s", err, out)
	}
	require.Equal(t, "new", b.content("f"))
	cwd := regexp.QuoteMeta(b.cwd)
	require.Regexp(t, `(?s)fsync\(\d+<`+cwd+`/\.cnd-\w+\.tmp>\).*rename[^\n]*\.cnd-\w+\.tmp[^\n]*"f".*fsync\(\d+<`+cwd+`>\)`, string(must(os.ReadFile(log))))
}
