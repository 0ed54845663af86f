package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"condensate.dev/cnd/adapters/jsonl"
	"condensate.dev/cnd/adapters/notes"
	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/tools/internal/config"
)

// input is a record that can be read any number of times. It is a replay.Source.
type input struct {
	*jsonl.File
	name string
	// stored says that the record was copied out of a store: it carries no head line, and head is the newest one that
	// is known of it, nil when there is none.
	stored bool
	head   *record.SignedHead
}

// open opens what name names: "-" is stdin, a thread id a thread, everything else a file.
func open(ctx context.Context, name string, stdin io.Reader) (*input, error) {
	switch {
	case name == "-":
		f, err := jsonl.Spool(stdin, "")
		return &input{File: f, name: "stdin"}, err
	case record.ValidID(record.PrefixThread, name):
		return openThread(ctx, record.ThreadID(name))
	}
	f, err := jsonl.Open(name)
	return &input{File: f, name: name}, err
}

// openThread copies a thread out of the store, which is open for no longer than that; while a runtime holds the store,
// the runtime exports the thread.
func openThread(ctx context.Context, id record.ThreadID) (*input, error) {
	dirs, err := config.FindDirs()
	if err != nil {
		return nil, err
	}
	in, err := copyOut(ctx, dirs, id)
	switch {
	case errors.Is(err, pebblestore.ErrLocked):
		in, err = exported(ctx, dirs, id)
	case errors.Is(err, pebblestore.ErrNoStore):
		err = fmt.Errorf("thread %s: no store in %s: %w", id, dirs.Data, record.ErrNotFound)
		return nil, fault.WithHint(err, "set "+config.EnvDataDir+" to the data folder of the runtime")
	}
	return in, unknown(id, err)
}

// unknown says of a thread that is nowhere only that, and which it is.
func unknown(id record.ThreadID, err error) error {
	if err == nil || fault.Find(err).Code != record.ErrNotFound.Code {
		return err
	}
	return fault.WithHint(fmt.Errorf("thread %s: %w", id, record.ErrNotFound), "cnd-runtime thread list")
}

// copyOut reads the thread from the store of a runtime that is not up.
func copyOut(ctx context.Context, dirs config.Dirs, id record.ThreadID) (in *input, err error) {
	store, err := pebblestore.Open(filepath.Join(dirs.Data, config.StoreFolder), pebblestore.Options{ReadOnly: true, LockWait: -1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if _, err := store.Head(ctx, id); err != nil {
		return nil, err
	}
	in = &input{name: string(id), stored: true}
	head, foreign, err := store.ForeignHead(ctx, id)
	if err == nil && !foreign {
		in.head, err = notes.Newest(filepath.Join(dirs.Data, config.HeadsFile), id)
	}
	if err != nil {
		return nil, err
	}
	if head.Note != "" { // an ancestor that only came along has none
		in.head = &head
	}
	in.File, err = spool(func(w io.Writer) error { return record.WriteExport(ctx, w, store, id, record.SignedHead{}) })
	return in, err
}

// exported asks the runtime for the thread.
func exported(ctx context.Context, dirs config.Dirs, id record.ThreadID) (*input, error) {
	runtime := client.Open(dirs.Config, dirs.Data)
	defer runtime.CloseIdle()
	f, err := spool(func(w io.Writer) error { return runtime.Export(ctx, id, w) })
	return &input{File: f, name: string(id)}, err
}

// spool keeps what write writes.
func spool(write func(io.Writer) error) (*jsonl.File, error) {
	r, w := io.Pipe()
	go func() { w.CloseWithError(write(w)) }()
	defer r.Close()
	return jsonl.Spool(r, "")
}
