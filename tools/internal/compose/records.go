package compose

import (
	"context"
	"errors"
	"fmt"
	"io"

	"condensate.dev/cnd/adapters/httpapi"
	"condensate.dev/cnd/adapters/notes"
	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
)

var errAncestor = fault.New(fault.Conflict, "no-signed-head",
	"the thread was imported as the ancestor of another one, and its signer made no head for it; export that one")

// records takes threads out of the store and into it.
type records struct {
	store *pebblestore.Store
	heads *notes.Heads
}

// export writes a thread's export up to its newest entry, whose head it signs first. An imported thread keeps the
// head that it came with.
func (r records) export(ctx context.Context, id record.ThreadID, w io.Writer) error {
	signed, err := r.head(ctx, id)
	if err != nil {
		return err
	}
	return record.WriteExport(ctx, w, r.store, id, signed)
}

func (r records) head(ctx context.Context, id record.ThreadID) (record.SignedHead, error) {
	signed, foreign, err := r.store.ForeignHead(ctx, id)
	switch {
	case err != nil:
		return signed, err
	case foreign && signed.Note == "":
		return signed, fmt.Errorf("export %s: %w", id, errAncestor)
	case foreign:
		return signed, nil
	}
	at, err := r.store.Head(ctx, id)
	if err != nil {
		return record.SignedHead{}, err
	}
	return r.heads.Sign(id, at)
}

// importRecord verifies an export and stores it, all of it or nothing.
func (r records) importRecord(ctx context.Context, in io.Reader) (httpapi.Imported, error) {
	into, err := r.store.BeginImport()
	if err != nil {
		return httpapi.Imported{}, err
	}
	report, err := record.VerifyExport(in, record.VerifyOptions{Opener: notes.Opener{}, KeepBlobs: true}, func(e record.Entry) error {
		return into.Add(ctx, e)
	})
	if err != nil {
		return httpapi.Imported{}, errors.Join(err, into.Abort())
	}
	if err := into.Commit(ctx, *report.Signed); err != nil {
		return httpapi.Imported{}, fmt.Errorf("import %s: %w", report.Thread, err)
	}
	return httpapi.Imported{Thread: report.Thread, Head: report.Head}, nil
}
