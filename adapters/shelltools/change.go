package shelltools

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/thread"
)

// changing is the input of a tool that changes one file.
type changing interface {
	named
	// content returns what the file will hold, given what it holds now, and what the result says. It is pure.
	content(now []byte, exists bool) (next []byte, did string, err error)
	// whole says that the content does not depend on what the file holds now.
	whole() bool
}

// change is a tool that changes one file: write and edit.
type change[I changing] struct{ tools *Tools }

// plan names the effect. When the change cannot be made, the plan has none, and run says why: whether a text is in a
// file is for those to know who may read it.
func (t change[I]) plan(c loop.Call) (loop.Plan, error) {
	input, f, path, err := parse[I](c)
	if err != nil {
		return loop.Plan{}, err
	}
	p := loop.Plan{Replay: thread.ReplayUnsafe, Paths: []string{path}, Writes: true}
	if n, err := next(f, path, input); err == nil {
		p.Effect = &thread.FileEffect{Path: path, Before: n.before, After: n.after}
	}
	return p, nil
}

// version is what a change makes of a file.
type version struct {
	before, after string // of a thread.FileEffect
	content       []byte
	did           string
}

// next computes a change. It changes nothing.
func next(f folder, path string, input changing) (version, error) {
	now, before, err := current(f, path, input.whole())
	if err != nil {
		return version{}, f.about(path, err)
	}
	content, did, err := input.content(now, before != absent)
	if err != nil {
		return version{}, f.about(path, err)
	}
	return version{before, digest(content), content, did}, nil
}

// current returns what the file holds, "absent" for no file. With only, it leaves the content out.
func current(f folder, path string, only bool) (content []byte, sum string, err error) {
	p, err := f.open(path, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, absent, nil
	}
	if err != nil {
		return nil, "", err
	}
	defer p.close()
	if only {
		sum, err = p.digest()
		return nil, sum, err
	}
	file, info, err := p.file()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, absent, nil
	}
	if err != nil {
		return nil, "", err
	}
	defer file.Close()
	if info.Size() > MaxFile {
		return nil, "", tooLarge(info.Size(), MaxFile)
	}
	content, err = io.ReadAll(io.LimitReader(file, MaxFile+1))
	if err == nil && len(content) > MaxFile {
		err = tooLarge(int64(len(content)), MaxFile)
	}
	return content, digest(content), err
}

func (t change[I]) run(ctx context.Context, c loop.Call, p loop.Plan, _ func(string)) (loop.Outcome, error) {
	input, f, path, err := replan[I](c, p)
	if err != nil {
		return loop.Outcome{}, err
	}
	t.tools.writing.Lock() // calls of one answer may run side by side
	defer t.tools.writing.Unlock()
	n, err := next(f, path, input)
	switch {
	case err != nil:
		return loop.Outcome{}, err
	case p.Effect == nil || *p.Effect != thread.FileEffect{Path: path, Before: n.before, After: n.after}:
		return loop.Outcome{}, errChanged
	case ctx.Err() != nil:
		return loop.Outcome{}, errStopped
	}
	place, err := f.open(path, true)
	if err != nil {
		return loop.Outcome{}, f.about(path, err)
	}
	defer place.close()
	if err := place.replace(tempName(c), n); err != nil {
		return loop.Outcome{}, f.about(path, err)
	}
	return done(f, path, n.did), nil
}

func done(f folder, path, did string) loop.Outcome {
	r := textResult(f.show(path) + ": " + did)
	return loop.Outcome{Result: &r}
}

// recover decides by the file's hash whether the change was made, and removes what a half-made one left.
func (t change[I]) recover(_ context.Context, c loop.Call, started thread.ToolStarted) loop.Outcome {
	unknown := loop.Outcome{Unknown: &thread.ToolUnknown{Cause: thread.CauseCrash}}
	if started.Effect == nil {
		return loop.Outcome{NotDone: true} // run writes nothing without one
	}
	f, err := openFolder(c.Cwd)
	if err != nil {
		return unknown
	}
	path, sum := started.Effect.Path, absent
	place, err := f.open(path, false)
	if err == nil {
		defer place.close()
		_ = place.dir.Remove(tempName(c))
		sum, err = place.digest()
	}
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return unknown
	case sum == started.Effect.After:
		return done(f, path, "written before the runtime stopped")
	case sum == started.Effect.Before:
		return loop.Outcome{NotDone: true}
	default:
		return unknown
	}
}
