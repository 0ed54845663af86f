package record

import (
	"bufio"
	"context"
	"fmt"
	"io"
)

// WriteExport writes a thread as lines: its ancestors' entries, its own up to the place that head names, each blob
// directly before the entry that first lists it, and head at the end. With the zero head it writes all entries and no
// head line. It returns when everything is handed to w; the memory is flat but for a set of digests.
func WriteExport(ctx context.Context, w io.Writer, s Store, thread ThreadID, head SignedHead) error {
	out := bufio.NewWriterSize(w, 64<<10)
	x := exporter{out: out, store: s, written: make(map[Digest]struct{})}
	var at Head
	for e, err := range ReadThrough(ctx, s, thread, 0) {
		if err != nil {
			return fmt.Errorf("export %s: %w", thread, err)
		}
		if err := x.entry(ctx, e); err != nil {
			return fmt.Errorf("export entry %d of %s: %w", e.Seq, e.Thread, err)
		}
		at = e.Head()
		if at == head.Place() {
			break
		}
	}
	if head.Note != "" {
		if head.Thread != thread || head.Place() != at {
			return fmt.Errorf("export %s: head names seq %d of %s: %w", thread, head.Seq, head.Thread, ErrHead)
		}
		if err := x.line(head.AppendLine(x.buf[:0])); err != nil {
			return fmt.Errorf("export %s: %w", thread, err)
		}
	}
	return out.Flush()
}

type exporter struct {
	out     *bufio.Writer
	store   Store
	written map[Digest]struct{} // blobs whose line was written
	buf     []byte
}

func (x *exporter) entry(ctx context.Context, e Entry) error {
	for _, d := range ListedBlobs(e.Body) {
		if _, ok := x.written[d]; ok {
			continue
		}
		x.written[d] = struct{}{}
		data, err := x.store.Blob(ctx, d)
		if err != nil {
			return fmt.Errorf("blob %s: %w", d, err)
		}
		x.buf = Blob{Digest: d, Data: data}.AppendLine(x.buf[:0])
		if err := x.line(x.buf); err != nil {
			return err
		}
	}
	return x.line(e.Line)
}

func (x *exporter) line(line []byte) error {
	x.out.Write(line) // a bufio.Writer keeps its first error
	return x.out.WriteByte('\n')
}
