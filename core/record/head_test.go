package record_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

func someHead(t testing.TB) record.SignedHead {
	t.Helper()
	at := record.Head{Seq: 41, Hash: record.NewBlob([]byte("entry")).Digest}
	h, err := record.SignHead(signer, someThread, at, record.NewBlob([]byte("note")).Digest)
	require.NoError(t, err)
	return h
}

// TestHeadLine pins the bytes of a head line; the signature is Ed25519, which is deterministic.
func TestHeadLine(t *testing.T) {
	h := someHead(t)
	text := "condensate.dev/head/v0\nthr_01fwhe4ydgfk1shh6w1g60eecf\n41\n" + h.Hash.String() + "\n" + h.Prev.String() + "\n"
	require.Equal(t, text, record.HeadText(h.Thread, h.Place(), h.Prev))
	require.True(t, strings.HasPrefix(h.Note, text+"\n— condensate.dev/record KEBKy"), h.Note)
	line := h.AppendLine(nil)
	require.Equal(t, `{"v":0,"head":{"thread":"thr_01fwhe4ydgfk1shh6w1g60eecf","seq":41,"hash":"`+h.Hash.String()+`","prev":"`+h.Prev.String()+
		`"},"note":"`+strings.ReplaceAll(h.Note, "\n", `\n`)+`"}`, string(line))
	require.True(t, record.IsHeadLine(line))
	got, err := record.ParseHeadLine(line)
	require.NoError(t, err)
	require.Equal(t, h, got)
	require.NoError(t, got.Open(signer, signer.VerifierKey()))
	require.Equal(t, record.NewBlob([]byte(h.Note)).Digest, h.NoteHash())
}

// TestHeadOneForm shows that what means the same in another form is refused, and also a note with anything else in it.
func TestHeadOneForm(t *testing.T) {
	good := string(someHead(t).AppendLine(nil))
	signature := good[strings.LastIndex(good, " ")+1 : len(good)-4]
	for old, changed := range map[string][]string{
		`"seq":41`:   {`"seq":041`, `"seq":41.0`, `"seq": 41`, `"seq":"41"`, `"seq":42`},
		`{"thread":`: {`{ "thread":`, `{"x":0,"thread":`},
		`\n\n—`:      {`\n—`, `\n\n\n—`, `\n\n-`, `\n\n\u2014`, `\u000a\n—`, `\n\n— x AAAA\n—`},
		signature:    {signature[:len(signature)-1], signature + "=", signature + "A", signature[:8] + `\n` + signature[8:], signature[:8] + " " + signature[8:], lastBit(signature), ""},
		"/record ":   {"/rec+ord ", `/rec\\ord `, "/rec ord ", "/récord "},
		`\n"}`:       {`"}`, `\n\n"}`, `\n","x":0}`, `\n"} `, `\n— other AAAA\n"}`, `\n"`},
		`"note":"`:   {`"note": "`, `"note":"x`},
	} {
		require.Equal(t, 1, strings.Count(good, old), old)
		for _, c := range changed {
			_, err := record.ParseHeadLine([]byte(strings.Replace(good, old, c, 1)))
			require.Error(t, err, c)
			require.True(t, errors.Is(err, record.ErrHead) || errors.Is(err, record.ErrInvalidEntry), c)
		}
	}
	for i := range good {
		_, err := record.ParseHeadLine([]byte(good[:i]))
		require.Error(t, err)
	}
	bad := someHead(t)
	bad.Thread = "thr_"
	bad.Note = strings.Replace(bad.Note, string(someThread), "thr_", 1)
	_, err := record.ParseHeadLine(bad.AppendLine(nil))
	require.ErrorIs(t, err, record.ErrInvalidEntry)
}

// lastBit changes the bits of the last digit before the padding that carry nothing: a lenient reader ignores them.
func lastBit(signature string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	at := len(signature) - 2
	return signature[:at] + string(alphabet[strings.IndexByte(alphabet, signature[at])+1]) + "="
}

func TestOpenHead(t *testing.T) {
	h := someHead(t)
	require.ErrorIs(t, h.Open(signer, recordtest.NewSigner("condensate.dev/record", 2).VerifierKey()), record.ErrHead)
	require.ErrorIs(t, h.Open(signer, "nonsense"), record.ErrHead)
	require.ErrorIs(t, h.Open(opener("something else"), signer.VerifierKey()), record.ErrHead)
	moved := h
	moved.Seq++
	require.ErrorIs(t, moved.Open(signer, signer.VerifierKey()), record.ErrHead)
	signature := strings.LastIndex(h.Note, " ") + 20
	for bit := range 8 {
		broken := []byte(h.Note)
		broken[signature] ^= 1 << bit
		moved.Seq, moved.Note = h.Seq, string(broken)
		require.ErrorIs(t, moved.Open(signer, signer.VerifierKey()), record.ErrHead)
	}
}

// opener says that every note has this text.
type opener string

func (o opener) OpenNote(string, string) (string, error) { return string(o), nil }

func TestKeyID(t *testing.T) {
	require.Equal(t, "condensate.dev/record+28404ac8", record.KeyID(signer.VerifierKey()))
	require.Equal(t, "x+01234567", record.KeyID("x+01234567+AB+/"))
	for _, bad := range []string{"", "x", "x+01234567", "x+0123456+AAAA", "x+0123456G+AAAA", "+01234567+AAAA", "x y+01234567+AAAA", "x+01234567+A"} {
		require.Empty(t, record.KeyID(bad), bad)
	}
}

// TestVerifyHeads shows what may stand where in a file with heads.
func TestVerifyHeads(t *testing.T) {
	export := golden(t, "turn")
	own := lines(export)
	head := own[len(own)-1]
	start := bytes.Join(own[:len(own)-1], nil)
	w := recordtest.NewWriter(1)
	keyless := w.Seal(t, record.ThreadCreated, `{"cwd":"/"}`)
	h, err := record.SignHead(signer, w.ID, w.Head, record.Digest{})
	require.NoError(t, err)
	bare := append(append(keyless.Line, '\n'), append(h.AppendLine(nil), '\n')...)

	mustDamage(t, verify(start), record.ErrNoHead, 9, "")
	mustDamage(t, verify(head), record.ErrHead, 1, "")
	mustDamage(t, verify(bytes.Join([][]byte{start, head, head}, nil)), record.ErrDamaged, 11, "after the signed head")
	mustDamage(t, verify(bare), record.ErrHead, 2, "names no head key")
	_, err = record.VerifyExport(bytes.NewReader(bare), record.VerifyOptions{Opener: signer, Key: signer.VerifierKey()}, nil)
	require.NoError(t, err)

	// Without --unsigned nothing may follow a head; with it, what follows is counted.
	last, err := record.ParseHeadLine(bytes.TrimSuffix(head, []byte("\n")))
	require.NoError(t, err)
	more := recordtest.Writer{ID: last.Thread, Head: last.Place(), Gen: 1}
	after := append(bytes.Clone(export), append(more.Seal(t, record.NoteInjected, `{}`).Line, '\n')...)
	mustDamage(t, verify(after), record.ErrDamaged, 11, "after the signed head")
	r, err := record.VerifyExport(bytes.NewReader(after), record.VerifyOptions{Opener: signer, Unsigned: true}, nil)
	require.NoError(t, err)
	require.Equal(t, int64(1), r.Unanchored)
	require.Equal(t, last, *r.Signed)
	r, err = record.VerifyExport(bytes.NewReader(start), record.VerifyOptions{Unsigned: true}, nil)
	require.NoError(t, err)
	require.Nil(t, r.Signed)
	require.Equal(t, r.Entries, r.Unanchored)

	require.Panics(t, func() { record.VerifyExport(bytes.NewReader(export), record.VerifyOptions{}, nil) }) //nolint:errcheck // it panics
}

// TestWriteExport shows where an export ends and what it refuses.
func TestWriteExport(t *testing.T) {
	s := turnStory(t)
	place := s.head
	h, err := record.SignHead(signer, s.id, place, record.Digest{})
	require.NoError(t, err)
	s.ask(text("More."))
	var out bytes.Buffer
	require.NoError(t, record.WriteExport(t.Context(), &out, s.store, s.id, h))
	r, err := record.VerifyExport(bytes.NewReader(out.Bytes()), record.VerifyOptions{Opener: signer}, nil)
	require.NoError(t, err)
	require.Equal(t, place, r.Head, "entries after the signed head are not written")

	other := h
	other.Hash[0]++
	require.ErrorIs(t, record.WriteExport(t.Context(), &out, s.store, s.id, other), record.ErrHead)
	require.ErrorIs(t, record.WriteExport(t.Context(), &out, s.store, recordtest.ThreadID(1), h), record.ErrNotFound)
	broken := errors.New("broken pipe")
	require.ErrorIs(t, record.WriteExport(t.Context(), failing{broken}, s.store, s.id, h), broken)
	image := imageStory(t)
	lost := rotten{Store: image.store, blob: func([]byte) ([]byte, error) { return nil, record.ErrNoBlob }}
	require.ErrorIs(t, record.WriteExport(t.Context(), &out, lost, image.id, record.SignedHead{}), record.ErrNoBlob)
}

// failing is a writer that fails.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
