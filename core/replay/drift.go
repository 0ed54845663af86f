package replay

import (
	"bytes"
	"context"
	"fmt"

	"condensate.dev/cnd/core/record"
)

// Drift says, in a sentence for a person, where the body now, which was built to be sent again, differs from the one
// of the request at seq. When the record still gives the recorded bytes, the first byte that differs is known; else
// what was recorded is gone and its hashes bound where it was different.
func Drift(ctx context.Context, src Source, seq record.Seq, now []byte) string {
	var was bytes.Buffer
	if err := Body(ctx, src, seq, &was); err == nil {
		at, recorded, rebuilt := firstByte(was.Bytes(), now)
		return fmt.Sprintf("the first byte that differs is %d: recorded %q, rebuilt %q", at, recorded, rebuilt)
	}
	d, err := Explain(ctx, src, seq)
	switch {
	case err != nil:
		return "where they differ is not known: " + err.Error()
	case d == nil || d.Same > int64(len(now)):
		return "where they differ is not known"
	}
	around := now[max(0, d.Same-before):min(int64(len(now)), d.Same+after)]
	return fmt.Sprintf("the first byte that differs is not before %d, where the rebuilt body has %q", d.Same, around)
}
