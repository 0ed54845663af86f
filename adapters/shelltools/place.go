package shelltools

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"
)

var (
	errMoved   = errors.New("the path leads elsewhere than when the call was checked; nothing was done")
	errChanged = errors.New("the file changed since the call was checked; nothing was written. Read it again")
	errStopped = errors.New("stopped before it was done; nothing was changed")
)

// folder is the thread's folder.
type folder struct {
	path   string   // absolute and link-free
	closed []string // folders that a walk leaves out; link-free
}

// openFolder finds the thread's folder. It fails when the folder is gone: nothing ever runs elsewhere instead.
func openFolder(cwd string) (folder, error) {
	path, err := filepath.EvalSymlinks(cwd)
	if err == nil {
		var info fs.FileInfo
		if info, err = os.Stat(path); err == nil && !info.IsDir() {
			err = syscall.ENOTDIR
		}
	}
	if err != nil || !filepath.IsAbs(path) {
		return folder{}, fmt.Errorf("the working folder %s of this thread cannot be used: %s", cwd, reason(err))
	}
	return folder{path: path}, nil
}

// resolve returns the absolute, cleaned and link-free path of a name. What does not exist yet is named in the folder
// where it would be made.
func (f folder) resolve(name string) (string, error) {
	switch {
	case len(name) > MaxName:
		return "", fmt.Errorf("the path is longer than %d bytes", MaxName)
	case strings.ContainsRune(name, 0):
		return "", errors.New("the path holds a NUL character")
	case name == "~" || strings.HasPrefix(name, "~/"):
		return "", errors.New(`"~" has no meaning here; write the path out`)
	case !filepath.IsAbs(name):
		name = filepath.Join(f.path, name)
	}
	name = filepath.Clean(name)
	missing := ""
	for existing := name; ; existing = filepath.Dir(existing) {
		real, err := filepath.EvalSymlinks(existing)
		if err == nil {
			return recordable(filepath.Join(real, missing))
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%s: %s", name, reason(err))
		}
		if _, err := os.Lstat(existing); err == nil {
			return "", fmt.Errorf("%s is a symbolic link to something that does not exist", existing)
		}
		missing = filepath.Join(filepath.Base(existing), missing)
	}
}

// recordable refuses a path that a record cannot hold as it is: an approval of it would never be found again.
func recordable(path string) (string, error) {
	if !utf8.ValidString(path) {
		return "", fmt.Errorf("%s: the path is not UTF-8", valid(path))
	}
	return path, nil
}

// show returns how results name a path: relative inside the thread's folder, absolute elsewhere.
func (f folder) show(path string) string {
	if rel, ok := f.inside(path); ok {
		return rel
	}
	return path
}

func (f folder) inside(path string) (rel string, ok bool) {
	rel, err := filepath.Rel(f.path, path)
	return rel, err == nil && filepath.IsLocal(rel)
}

// place is an open folder and the name of a file in it. Everything that is done at a place is done in that very
// folder, whatever happens to the names above it.
type place struct {
	dir  *os.Root
	base string
}

func (p place) close() { _ = p.dir.Close() }

// open opens the folder that holds the link-free path. Below the thread's folder it goes down one name at a time and
// cannot leave it; elsewhere, where the policy has allowed it, it makes sure that what it opened is what the path
// names. Either way a symbolic link on the way is an error. With create, missing folders are made.
func (f folder) open(path string, create bool) (place, error) {
	start, dir := f.path, filepath.Dir(path)
	if _, ok := f.inside(path); !ok || path == f.path {
		start = dir
		for create && start != filepath.Dir(start) && !isFolder(start) {
			start = filepath.Dir(start)
		}
	}
	down, err := filepath.Rel(start, dir)
	if err != nil {
		return place{}, err
	}
	root, err := openRoot(start)
	if err != nil {
		return place{}, err
	}
	for name := range strings.SplitSeq(down, string(filepath.Separator)) {
		if name == "." {
			continue
		}
		next, err := enter(root, name, create)
		_ = root.Close()
		if err != nil {
			return place{}, err
		}
		root = next
	}
	return place{root, filepath.Base(path)}, nil
}

// openDir opens the folder that the link-free path names.
func (f folder) openDir(path string) (*os.Root, error) {
	if path == f.path || path == filepath.Dir(path) {
		return openRoot(path)
	}
	p, err := f.open(path, false)
	if err != nil {
		return nil, err
	}
	defer p.close()
	return enter(p.dir, p.base, false)
}

// openRoot opens the folder at a link-free path.
func openRoot(path string) (*os.Root, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	opened, err := root.Stat(".")
	if err == nil {
		var named fs.FileInfo
		named, err = os.Lstat(path)
		if real, e := filepath.EvalSymlinks(path); err == nil && (e != nil || real != path || !os.SameFile(opened, named)) {
			err = errMoved
		}
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// enter opens the folder of that name in root, never through a link. With create, it makes a missing one durably.
func enter(root *os.Root, name string, create bool) (*os.Root, error) {
	if create {
		err := root.Mkdir(name, 0o777)
		if err == nil {
			err = syncFolder(root)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	named, err := root.Lstat(name)
	switch {
	case err != nil:
		return nil, err
	case !named.IsDir(): // a link is none either
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
	}
	next, err := root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	opened, err := next.Stat(".")
	if err == nil && !os.SameFile(named, opened) {
		err = errMoved
	}
	if err != nil {
		return nil, errors.Join(err, next.Close())
	}
	return next, nil
}

// file opens the regular file at the place for reading. It never waits for a pipe or touches a device.
func (p place) file() (*os.File, fs.FileInfo, error) {
	named, err := p.dir.Lstat(p.base)
	if err != nil {
		return nil, nil, err
	}
	if err := mustBeFile(named); err != nil {
		return nil, nil, err
	}
	f, err := p.dir.OpenFile(p.base, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	opened, err := f.Stat()
	if err == nil && (!os.SameFile(named, opened) || !opened.Mode().IsRegular()) {
		err = errMoved
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, opened, nil
}

func mustBeFile(info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return errors.New("is a folder; glob lists what is in it")
	case mode&fs.ModeSymlink != 0:
		return errMoved
	default:
		return errors.New("is neither a file nor a folder (a device, pipe or socket)")
	}
}

func isFolder(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// about puts the path that the model knows before what went wrong.
func (f folder) about(path string, err error) error {
	if err == nil || errors.Is(err, errMoved) || errors.Is(err, errChanged) {
		return err
	}
	return fmt.Errorf("%s: %s", f.show(path), reason(err))
}

// reason returns the innermost text of an error, without the names of system calls.
func reason(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "it is not an absolute path"
	case errors.As(err, &errno):
		return errno.Error()
	}
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err.Error()
	}
	return err.Error()
}
