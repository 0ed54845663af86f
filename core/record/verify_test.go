package record_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// unsigned verifies lines that carry no head.
func unsigned(lines ...[]byte) (record.Report, error) {
	var all bytes.Buffer
	for _, l := range lines {
		all.Write(l)
		all.WriteByte('\n')
	}
	return record.VerifyExport(&all, record.VerifyOptions{Unsigned: true}, nil)
}

func entryLines(entries ...record.Entry) (all [][]byte) {
	for _, e := range entries {
		all = append(all, e.Line)
	}
	return all
}

// mustDamage fails unless err is damage at that line.
func mustDamage(t *testing.T, err error, kind error, line int64, why string) {
	t.Helper()
	var d *record.Damage
	require.ErrorAs(t, err, &d)
	require.ErrorIs(t, err, kind)
	require.Equal(t, line, d.Line, err)
	require.ErrorContains(t, err, why)
}

func TestVerifyReport(t *testing.T) {
	export := golden(t, "small")
	var seen []record.Kind
	var blobs int
	r, err := record.VerifyExport(bytes.NewReader(export), record.VerifyOptions{Opener: signer, KeepBlobs: true}, func(e record.Entry) error {
		seen = append(seen, e.Kind)
		for _, b := range e.Blobs {
			require.Equal(t, record.NewBlob(b.Data).Digest, b.Digest)
			blobs++
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []record.Kind{
		record.ThreadCreated, record.EngineStarted, record.EpochStarted, record.MessageAccepted, record.MessageAccepted,
		record.EntryErased, record.ThreadForked, record.EngineStarted,
	}, seen)
	require.Equal(t, record.Seq(7), r.Head.Seq)
	require.Equal(t, [3]int64{8, 1, 1}, [3]int64{r.Entries, r.Erased, r.Blobs})
	require.Equal(t, 1, blobs)
	require.Zero(t, r.Unanchored)
	require.Equal(t, r.Head, r.Signed.Place())
	require.Equal(t, "condensate.dev/record+28404ac8", record.KeyID(r.Key))
	require.Greater(t, r.Hashed, int64(len(export)/2))
	require.Less(t, r.Hashed, int64(len(export)))
}

// TestVerifyEach shows that an error of the caller ends the reading and comes back as it is.
func TestVerifyEach(t *testing.T) {
	enough := errors.New("enough")
	n := 0
	_, err := record.VerifyExport(bytes.NewReader(golden(t, "turn")), record.VerifyOptions{Opener: signer}, func(record.Entry) error {
		if n++; n == 3 {
			return enough
		}
		return nil
	})
	require.Equal(t, enough, err)
	require.Equal(t, 3, n)
}

func TestVerifyNotRecord(t *testing.T) {
	start := recordtest.NewWriter(1).Start(t, 2)
	for name, c := range map[string]struct {
		text string
		kind error
		line int64
	}{
		"empty":          {"", record.ErrNotRecord, 0},
		"text":           {"hello\n", record.ErrNotRecord, 1},
		"torn text":      {"hello", record.ErrNotRecord, 1},
		"other JSON":     {`{"type":"entry"}` + "\n", record.ErrNotRecord, 1},
		"later version":  {strings.Replace(string(start[0].Line), `{"v":0`, `{"v":7`, 1) + "\n", record.ErrVersion, 1},
		"mixed versions": {string(start[0].Line) + "\n" + strings.Replace(string(start[1].Line), `{"v":0`, `{"v":7`, 1) + "\n", record.ErrDamaged, 2},
		"other line":     {`{"v":0,"type":"entry"}` + "\n", record.ErrDamaged, 1},
		"torn entry":     {string(start[0].Line), record.ErrDamaged, 1},
		"long line":      {strings.Repeat("x", record.MaxLine) + "\n", record.ErrNotRecord, 1},
		"long entry":     {string(start[0].Line) + "\n" + strings.Repeat("x", record.MaxLine) + "\n", record.ErrDamaged, 2},
	} {
		_, err := record.VerifyExport(strings.NewReader(c.text), record.VerifyOptions{Unsigned: true}, nil)
		mustDamage(t, err, c.kind, c.line, "")
		want := fault.Invalid
		if c.kind == record.ErrDamaged {
			want = fault.Corrupt
		}
		require.Equal(t, want, fault.ClassOf(err), name)
	}
	broken := errors.New("broken pipe")
	_, err := record.VerifyExport(iotest.ErrReader(broken), record.VerifyOptions{Unsigned: true}, nil)
	require.ErrorIs(t, err, broken)
	require.Equal(t, fault.Internal, fault.ClassOf(err), "an error of the reader is no damage")
}

// TestVerifyChain tries entries that are sound by themselves at the wrong place.
func TestVerifyChain(t *testing.T) {
	w := recordtest.NewWriter(1)
	start := entryLines(w.Start(t, 3)...)
	other := recordtest.NewWriter(2)
	theirs := entryLines(other.Start(t, 5)...)
	f, forked := w.Fork(t, 3)
	at := w.Head

	_, err := unsigned(append(start, forked.Line)...)
	require.NoError(t, err)
	_, err = unsigned(start[1:]...)
	mustDamage(t, err, record.ErrDamaged, 1, "the first entry is message.accepted")
	_, err = unsigned(start[0], start[2])
	mustDamage(t, err, record.ErrDamaged, 2, "seq is 2")
	_, err = unsigned(start[0], start[0])
	mustDamage(t, err, record.ErrDamaged, 2, "seq is 0")
	_, err = unsigned(start[0], start[1], theirs[2])
	mustDamage(t, err, record.ErrDamaged, 3, "prev is")
	_, err = unsigned(append(start, (&recordtest.Writer{ID: other.ID, Head: at}).Seal(t, record.NoteInjected, `{}`).Line)...)
	mustDamage(t, err, record.ErrDamaged, 4, "without a fork")
	_, err = unsigned(append(start, (&recordtest.Writer{ID: w.ID, Head: at}).Seal(t, record.ThreadCreated, `{}`).Line)...)
	mustDamage(t, err, record.ErrDamaged, 4, "thread.created")
	late := w.More(t, 1)
	_, err = unsigned(append(start, late[0].Line, forked.Line)...)
	mustDamage(t, err, record.ErrDamaged, 5, "seq is 3")

	for name, body := range map[string]string{
		"another parent": fmt.Sprintf(`{"parent":"%s","seq":%d,"hash":"%s"}`, other.ID, at.Seq, at.Hash),
		"another seq":    fmt.Sprintf(`{"parent":"%s","seq":%d,"hash":"%s"}`, w.ID, at.Seq-1, at.Hash),
		"another hash":   fmt.Sprintf(`{"parent":"%s","seq":%d,"hash":"%s"}`, w.ID, at.Seq, forked.Hash),
		"itself":         fmt.Sprintf(`{"parent":"%s","seq":%d,"hash":"%s"}`, f.ID, at.Seq, at.Hash),
		"another order":  fmt.Sprintf(`{"seq":%d,"parent":"%s","hash":"%s"}`, at.Seq, w.ID, at.Hash),
		"more":           fmt.Sprintf(`{"parent":"%s","seq":%d,"hash":"%s","x":0}`, w.ID, at.Seq, at.Hash),
	} {
		bad := (&recordtest.Writer{ID: f.ID, Head: at}).Seal(t, record.ThreadForked, body)
		_, err = unsigned(append(start, bad.Line)...)
		mustDamage(t, err, record.ErrDamaged, 4, "")
		require.NotNil(t, err, name)
	}
	self := (&recordtest.Writer{ID: w.ID, Head: at}).Seal(t, record.ThreadForked, fmt.Sprintf(`{"parent":"%s","seq":%d,"hash":"%s"}`, w.ID, at.Seq, at.Hash))
	_, err = unsigned(append(start, self.Line)...)
	mustDamage(t, err, record.ErrDamaged, 4, "")
}

// TestVerifyGeneration shows that only engine.started begins a generation, and only a later one.
func TestVerifyGeneration(t *testing.T) {
	w := recordtest.NewWriter(1)
	all := w.Start(t, 1)
	w.Gen = 4
	all = append(all, w.Seal(t, record.EngineStarted, `{}`))
	all = append(all, w.More(t, 1)...)
	_, err := unsigned(entryLines(all...)...)
	require.NoError(t, err)
	for gen, kind := range map[uint64]record.Kind{3: record.EngineStarted, 5: record.MessageAccepted, 0: record.MessageAccepted} {
		x := recordtest.Writer{ID: w.ID, Head: w.Head, Gen: gen}
		_, err = unsigned(append(entryLines(all...), x.Seal(t, kind, `{}`).Line)...)
		mustDamage(t, err, record.ErrDamaged, 4, "gen")
	}
}

// TestVerifyBlobs tries blob lines that are missing, repeated, moved or unused.
func TestVerifyBlobs(t *testing.T) {
	a, b, c := record.NewBlob([]byte("a")), record.NewBlob(nil), record.NewBlob([]byte("c"))
	w := recordtest.NewWriter(1)
	start := w.Start(t, 1)[0].Line
	one := w.Seal(t, record.ToolFinished, recordtest.Listing(a, b), a, b).Line
	two := w.Seal(t, record.ToolFinished, recordtest.Listing(b, c), b, c).Line
	lineA, lineB, lineC := a.AppendLine(nil), b.AppendLine(nil), c.AppendLine(nil)

	r, err := unsigned(start, lineA, lineB, one, lineC, two)
	require.NoError(t, err)
	require.Equal(t, int64(3), r.Blobs)
	for name, m := range map[string]struct {
		lines [][]byte
		line  int64
	}{
		"missing":    {[][]byte{start, lineA, one, lineC, two}, 3},
		"all gone":   {[][]byte{start, one, lineC, two}, 2},
		"repeated":   {[][]byte{start, lineA, lineB, one, lineB, lineC, two}, 7},
		"twice":      {[][]byte{start, lineA, lineB, lineB, one, lineC, two}, 5},
		"swapped":    {[][]byte{start, lineB, lineA, one, lineC, two}, 4},
		"too early":  {[][]byte{start, lineA, lineB, lineC, one, two}, 5},
		"at front":   {[][]byte{lineA, start, lineB, one, lineC, two}, 2},
		"at the end": {[][]byte{start, lineA, lineB, one, lineC, two, lineA}, 7},
		"unused":     {[][]byte{start, record.NewBlob([]byte("x")).AppendLine(nil), lineA, lineB, one}, 5},
		"only blobs": {[][]byte{lineA}, 1},
		"changed":    {[][]byte{start, bytes.Replace(lineA, []byte("YQ=="), []byte("Yg=="), 1), lineB, one}, 2},
	} {
		_, err := unsigned(m.lines...)
		mustDamage(t, err, record.ErrDamaged, m.line, "")
		require.NotNil(t, err, name)
	}
}

// TestVerifyIsFlat reads 36 MiB of record, blobs among them, and asks for no memory that grows with them.
func TestVerifyIsFlat(t *testing.T) {
	blob := record.NewBlob(bytes.Repeat([]byte("x"), 4<<20))
	r, w := io.Pipe()
	go func() {
		x := recordtest.NewWriter(1)
		body := `{"text":"` + strings.Repeat("words and more ", 4<<10/15) + `"}`
		w.Write(append(x.Start(t, 1)[0].Line, '\n'))
		for i := range 6_000 {
			if i%2000 == 0 {
				blob := record.NewBlob(append(blob.Data, byte(i/2000)))
				w.Write(append(blob.AppendLine(nil), '\n'))
				w.Write(append(x.Seal(t, record.ToolFinished, recordtest.Listing(blob), blob).Line, '\n'))
			}
			w.Write(append(x.Seal(t, record.MessageAccepted, body).Line, '\n'))
		}
		w.Close()
	}()
	var most uint64
	n := 0
	report, err := record.VerifyExport(r, record.VerifyOptions{Unsigned: true}, func(record.Entry) error {
		if n++; n%500 == 0 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, int64(6_004), report.Entries)
	require.Less(t, most, uint64(32<<20))
}

// FuzzExport shows that what verifies is in its one form: writing it again from what was read gives the same bytes. The
// fuzzer cannot guess a hash, so its entries get the hashes that they should have.
func FuzzExport(f *testing.F) {
	w := recordtest.NewWriter(1)
	a := record.NewBlob([]byte("a"))
	start := w.Start(f, 2)
	with := w.Seal(f, record.ToolFinished, recordtest.Listing(a), a)
	fork, forked := w.Fork(f, 2)
	erased := fork.Seal(f, record.EntryErased, fmt.Sprintf(`{"seq":1,"hash":"%s","by":9,"reason":""}`, start[1].Hash))
	head, err := record.SignHead(signer, fork.ID, fork.Head, record.Digest{})
	require.NoError(f, err)
	all := [][]byte{start[0].Line, start[1].Erase(9).Line, a.AppendLine(nil), with.Line, forked.Line, erased.Line, head.AppendLine(nil)}
	for n := range len(all) + 1 {
		f.Add(bytes.Join(all[:n], []byte("\n")))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		export := rechain(text)
		var again []byte
		r, err := record.VerifyExport(bytes.NewReader(export), record.VerifyOptions{Unsigned: true, KeepBlobs: true}, func(e record.Entry) error {
			for _, b := range e.Blobs {
				again = append(b.AppendLine(again), '\n')
			}
			again = append(append(again, e.Line...), '\n')
			return nil
		})
		if err != nil || r.Signed != nil {
			return // a head names a hash: forgeries try those
		}
		if !bytes.Equal(again, export) {
			t.Fatalf("accepted\n%s\nwhich is\n%s", export, again)
		}
	})
}

// rechain gives every line that looks like an entry the prev, sum and hash that it should have, and each line an end.
func rechain(text []byte) (export []byte) {
	prev := strings.Repeat("0", 64)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if at := strings.Index(line, `"prev":"`) + 8; at > 8 && len(line) >= at+64 && !strings.HasPrefix(line, `{"v":0,"head"`) {
			line = rehash(line[:at] + prev + line[at+64:])
			if _, rest, ok := strings.Cut(line, `,"hash":"`); ok && len(rest) >= 64 {
				prev = rest[:64]
			}
		}
		export = append(append(export, line...), '\n')
	}
	return export
}
