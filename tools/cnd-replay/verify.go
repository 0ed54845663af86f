package main

import (
	"context"
	"fmt"

	urfave "github.com/urfave/cli/v3"

	"condensate.dev/cnd/adapters/notes"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/replay"
	"condensate.dev/cnd/tools/internal/cli"
)

// verification is the report of verify.
type verification struct {
	V          int             `json:"v"`
	Type       string          `json:"type"`
	Thread     record.ThreadID `json:"thread"`
	Seq        record.Seq      `json:"seq"`  // of the last entry
	Hash       string          `json:"hash"` // of the last entry
	Entries    int64           `json:"entries"`
	Erased     int64           `json:"erased"`
	Blobs      int64           `json:"blobs"`
	Signed     *signature      `json:"signed"` // null when no head was checked
	Unanchored int64           `json:"unanchored"`
	Hashed     int64           `json:"hashed_bytes"` // of headers, bodies, blobs and requests
	Requests   replay.Report   `json:"requests"`
}

// signature is the newest signed head that was checked.
type signature struct {
	Seq record.Seq `json:"seq"`
	Key string     `json:"key"` // name and hash of the verifier key
}

// verify checks the chain and rebuilds the requests in one pass, each on a processor of its own if there is one.
func verify(ctx context.Context, c *urfave.Command, in *input, out output) error {
	if key := c.String("key"); key != "" {
		if err := notes.CheckVerifierKey(key); err != nil {
			return cli.Usagef("--key %.100q is not a verifier key: %s", key, err)
		}
	}
	requests := replay.StartBeside(ctx, in)
	key := c.String("key")
	options := record.VerifyOptions{
		Opener: notes.Opener{}, Key: key, Head: in.head,
		// Whoever names a key wants a signature.
		Unsigned: c.Bool("unsigned") || in.stored && in.head == nil && key == "",
	}
	checked, err := record.VerifyExport(in.Reader(), options, requests.Add)
	report, failed := requests.Wait()
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("verify %s: %w", in.name, err)
	}
	if report.First != nil {
		return different(ctx, in, report)
	}
	v := verification{
		Type: "verification", Thread: checked.Thread, Seq: checked.Head.Seq, Hash: checked.Head.Hash.String(),
		Entries: checked.Entries, Erased: checked.Erased, Blobs: checked.Blobs, Unanchored: checked.Unanchored,
		Hashed: checked.Hashed + report.Bytes, Requests: report,
	}
	if checked.Signed != nil {
		v.Signed = &signature{checked.Signed.Seq, record.KeyID(checked.Key)}
	}
	if out.json {
		return out.document(v)
	}
	v.text(out)
	return nil
}

// different makes the error of a record in which requests differ.
func different(ctx context.Context, in *input, report replay.Report) error {
	d := report.First
	if explained, err := replay.Explain(ctx, in, d.Seq); err == nil && explained != nil {
		d = explained
	}
	err := fmt.Errorf("verify %s: %d of %d requests differ: %w", in.name, report.Different, report.Requests, d)
	return fault.WithHint(err, fmt.Sprintf("the chain of entries is intact; see entries %d to %d: cnd-replay show --json", d.Epoch, d.Seq))
}

func (v verification) text(out output) {
	fmt.Fprintf(out, "%s: %s verified, the last is entry %d with hash %s\n", v.Thread, count(v.Entries, "entry", "entries"), v.Seq, v.Hash)
	if v.Signed != nil {
		fmt.Fprintf(out, "signed: entry %d by %s\n", v.Signed.Seq, v.Signed.Key)
	}
	if v.Unanchored > 0 {
		fmt.Fprintf(out, "unanchored: %s\n", count(v.Unanchored, "entry", "entries"))
	}
	fmt.Fprintf(out, "requests: %d of %d rebuilt byte for byte\n", v.Requests.Verified, v.Requests.Requests)
	if v.Requests.Unprovable > 0 {
		fmt.Fprintf(out, "unprovable: %s that used erased entries\n", count(v.Requests.Unprovable, "request", "requests"))
	}
	if v.Erased > 0 {
		fmt.Fprintf(out, "erased: %s\n", count(v.Erased, "entry", "entries"))
	}
}

func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
