package record_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// TestBlobsOfOneEntry shows what the blobs of one entry may hold together: more is not sealed, and a stream of blob lines
// without an entry is refused before it fills the memory.
func TestBlobsOfOneEntry(t *testing.T) {
	full := record.NewBlob(make([]byte, record.MaxBlob))
	blobs := make([]record.Blob, record.MaxBlobs/record.MaxBlob)
	for i := range blobs {
		blobs[i] = record.NewBlob(append([]byte{byte(i)}, full.Data[129:]...)) // together exactly as much as may be
	}
	w := recordtest.NewWriter(1)
	w.Start(t, 1)
	_, err := w.Try(record.ToolFinished, recordtest.Listing(append(blobs, record.NewBlob(nil))...), append(blobs, record.NewBlob(nil))...)
	require.ErrorIs(t, err, record.ErrInvalidEntry)
	_, err = w.Try(record.ToolFinished, recordtest.Listing(blobs...), blobs...)
	require.NoError(t, err)

	for _, c := range []struct {
		blob  record.Blob
		lines int // that fit
	}{{full, len(blobs) - 1}, {record.NewBlob(nil), record.MaxBlobs / 128}} {
		line := append(c.blob.AppendLine(nil), '\n')
		stream := &repeated{line: line}
		_, err := record.VerifyExport(stream, record.VerifyOptions{Unsigned: true, KeepBlobs: true}, func(record.Entry) error { return nil })
		mustDamage(t, err, record.ErrDamaged, int64(c.lines)+1, fmt.Sprintf("over %d bytes", record.MaxBlobs))
	}
}

// repeated is a line for ever.
type repeated struct {
	line []byte
	rest bytes.Reader
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.rest.Len() == 0 {
		r.rest.Reset(r.line)
	}
	return r.rest.Read(p)
}
