package record_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

const someThread record.ThreadID = "thr_01fwhe4ydgfk1shh6w1g60eecf"

var someTime = time.Date(2026, 11, 30, 20, 48, 23, 123456789, time.FixedZone("", 3600))

func seal(t testing.TB, after record.Head, kind record.Kind, body string) record.Entry {
	t.Helper()
	e, err := record.Seal(someThread, after, record.Salt{1, 2, 15: 255}, record.Draft{Gen: 3, Time: someTime, Kind: kind, Body: []byte(body)})
	require.NoError(t, err)
	return e
}

// TestSeal pins the bytes of an entry; the hashes were computed with sha256sum.
func TestSeal(t *testing.T) {
	first := seal(t, record.Head{}, record.ThreadCreated, `{"cwd":"/"}`)
	require.Equal(t, `{"v":0,"thread":"thr_01fwhe4ydgfk1shh6w1g60eecf","seq":0,"gen":3,"time":"2026-11-30T19:48:23.123456Z","kind":"thread.created",`+
		`"prev":"0000000000000000000000000000000000000000000000000000000000000000","sum":"`+first.Sum.String()+`","hash":"`+first.Hash.String()+`",`+
		`"salt":"010200000000000000000000000000ff","body":{"cwd":"/"}}`, string(first.Line))
	require.Equal(t, "2b68a62f73c49a04ac7c4c7c49cfbda42977d1a6c544f86221e73ac660ff4599", first.Sum.String())
	require.Equal(t, "c886583c5a567a8b2ee341a938253e960a7d9d270613632079d9f21b70cbd5c3", first.Hash.String())
}

// TestParse shows that parsing gives back what was sealed.
func TestParse(t *testing.T) {
	first := seal(t, record.Head{}, record.ThreadCreated, `{"cwd":"/"}`)
	second := seal(t, first.Head(), record.MessageAccepted, `{"text":"\u0000"}`)
	require.Equal(t, record.Seq(1), second.Seq)
	require.Equal(t, first.Hash, second.Prev)
	for _, e := range []record.Entry{first, second} {
		got, err := record.Parse(e.Line)
		require.NoError(t, err)
		require.Equal(t, e, got)
		require.Equal(t, string(e.Line), string(reseal(t, got).Line))

		erased := e.Erase(e.Seq + 5)
		require.Nil(t, erased.Body)
		got, err = record.Parse(erased.Line)
		require.NoError(t, err)
		require.Equal(t, erased, got)
		require.Equal(t, e.Hash, got.Hash)
		require.Equal(t, string(erased.Line), string(got.Erase(got.ErasedBy).Line))
	}
}

// reseal makes an entry anew from its fields.
func reseal(t testing.TB, e record.Entry) record.Entry {
	t.Helper()
	if e.Body == nil {
		return e.Erase(e.ErasedBy)
	}
	var salt record.Salt
	_, err := hex.Decode(salt[:], []byte(e.Salt))
	require.NoError(t, err)
	var blobs []record.Blob // those that the body lists cannot be known here
	after := record.Head{Hash: e.Prev}
	if e.Seq > 0 {
		after.Seq = e.Seq - 1
	}
	again, err := record.Seal(e.Thread, after, salt, record.Draft{Gen: e.Gen, Time: e.Time, Kind: e.Kind, Body: e.Body, Blobs: blobs})
	require.NoError(t, err)
	return again
}

// rehash gives a changed line the hash and the sum that it should have, as somebody would who wants to hide a change.
func rehash(line string) string {
	header, rest, ok := strings.Cut(line, `,"hash":"`)
	if !ok || len(rest) < 64 {
		return line
	}
	rest = rest[64:]
	if at := strings.Index(rest, `"salt":"`); at >= 0 && len(rest) > at+50 {
		salt, body := rest[at+8:at+40], rest[at+49:len(rest)-1]
		sum := record.NewBlob([]byte(salt + body)).Digest.String()
		if at := strings.Index(header, `"sum":"`); at >= 0 && len(header) >= at+71 {
			header = header[:at+7] + sum + header[at+71:]
		}
	}
	return header + `,"hash":"` + record.NewBlob([]byte(header+"}")).Digest.String() + rest
}

// TestParseOneForm shows that what means the same in another form is refused even with the right hashes.
func TestParseOneForm(t *testing.T) {
	good := string(seal(t, seal(t, record.Head{}, record.ThreadCreated, `{}`).Head(), record.MessageAccepted, `{"a":[1,2]}`).Line)
	require.Equal(t, good, rehash(good))
	_, err := record.Parse([]byte(good))
	require.NoError(t, err)
	for old, changed := range map[string][]string{
		`{"v":0,`:                        {`{"v":00,`, `{"v":-0,`, `{"v":0.0,`, `{ "v":0,`, `{"V":0,`, `{"v":"0",`, `{"v":,`},
		`"thread":"thr_`:                 {`"thread":"thr-`, `"thread": "thr_`, `"thread":"THR_`, `"thread":"\u0074hr_`},
		`thr_01fwhe4ydgfk1shh6w1g60eecf`: {`thr_01fwhe4ydgfk1shh6w1g60eec`, `thr_01fwhe4ydgfk1shh6w1g60eecff`, `thr_01FWHE4YDGFK1SHH6W1G60EECF`, `msg_01fwhe4ydgfk1shh6w1g60eecf`, ``},
		`"seq":1,`:                       {`"seq":01,`, `"seq":1.0,`, `"seq":1e0,`, `"seq":+1,`, `"seq":,`, `"seq":9007199254740992,`, `"seq":99999999999999999999999,`, `"seq":0,`, `"seq":"1",`, `"seq":-1,`},
		`"gen":3,`:                       {`"gen":03,`, `"gen":9007199254740992,`, `"gen":18446744073709551619,`},
		`2026-11-30T19:48:23.123456Z`: {`2026-11-30T19:48:23,123456Z`, `2026-11-30T9:48:23.123456Z`, `2026-11-30t19:48:23.123456Z`, `2026-11-30T19:48:23.12345Z`, `2026-11-30T19:48:23.1234567Z`,
			`2026-11-30T19:48:23.123456+00:00`, `2026-11-31T19:48:23.123456Z`, `2026-02-29T19:48:23.123456Z`, `2026-13-30T19:48:23.123456Z`, `2026-00-30T19:48:23.123456Z`, `2026-11-00T19:48:23.123456Z`, `2026-11-30T24:48:23.123456Z`,
			`2026-11-30T19:60:23.123456Z`, `2026-11-30T19:48:60.123456Z`, `2026-11-30 19:48:23.123456Z`, `2026-11-30T19:48:23.12345:Z`, `2026-11-30T19:48:23.123456z`, ``, `20261-11-30T19:48:23.123456Z`, `202/-11-30T19:48:23.123456Z`},
		`message.accepted`: {`message`, `message.`, `.accepted`, `message.accepted.`, `Message.accepted`, `message..accepted`, `message.acc-epted`, ``, strings.Repeat("a", 60) + ".aaaa"},
		`"hash":"`:         {`"hash": "`, `"Hash":"`},
		`"salt":"`:         {`"salt":"F`, `"salt":"g`, `"salt":"0`, `"erased":2,"salt":"`},
		`"body":{`:         {`"body":[{`, `"body":null{`, `"body": {`, `"body":{ `},
		`[1,2]`:            {`[1, 2]`, `[1,2],"a":0`, `[01,2]`, `["\ud800"]`, "[\"\xff\"]", "[\"\n\"]"},
		`2]}}`:             {`2]}} `, `2]}}}`, `2]}`, `2]}},`, `2]},"x":0}`},
	} {
		require.Equal(t, 1, strings.Count(good, old), old)
		for _, c := range changed {
			line := rehash(strings.Replace(good, old, c, 1))
			_, err := record.Parse([]byte(line))
			require.ErrorIs(t, err, record.ErrInvalidEntry, line)
		}
	}
	for i := range good {
		_, err := record.Parse([]byte(good[:i]))
		require.Error(t, err)
	}
}

// TestParseLimit shows that a line is bounded also when no reader of lines stands before.
func TestParseLimit(t *testing.T) {
	good := string(seal(t, record.Head{}, record.ThreadCreated, `{"a":""}`).Line)
	for over := range 2 {
		text := strings.Repeat("x", record.MaxLine-len(good)-1+over)
		_, err := record.Parse([]byte(rehash(strings.Replace(good, `{"a":"`, `{"a":"`+text, 1))))
		if over == 0 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, record.ErrInvalidEntry)
		}
	}
}

// TestParseErased shows what is refused of a line without salt and body.
func TestParseErased(t *testing.T) {
	e := seal(t, seal(t, record.Head{}, record.ThreadCreated, `{}`).Head(), record.MessageAccepted, `{"a":1}`)
	good := string(e.Erase(7).Line)
	for _, tail := range []string{`"erased":1}`, `"erased":0}`, `"erased":07}`, `"erased":7} `, `"erased":7`, `"erased":"7"}`, `"erased":7,"body":{}}`, `"erased":}`, `"erased":9007199254740992}`} {
		_, err := record.Parse([]byte(strings.Replace(good, `"erased":7}`, tail, 1)))
		require.ErrorIs(t, err, record.ErrInvalidEntry, tail)
	}
	_, err := record.Parse([]byte(rehash(strings.Replace(good, e.Sum.String(), strings.ToUpper(e.Sum.String()), 1))))
	require.ErrorIs(t, err, record.ErrInvalidEntry)
}

func TestParseVersion(t *testing.T) {
	line := string(seal(t, record.Head{}, record.ThreadCreated, `{}`).Line)
	_, err := record.Parse([]byte(strings.Replace(line, `{"v":0`, `{"v":1`, 1)))
	require.ErrorIs(t, err, record.ErrVersion)
	require.NotErrorIs(t, err, record.ErrInvalidEntry)
}

func TestSealRefuses(t *testing.T) {
	a := record.NewBlob([]byte("abc"))
	good := record.Draft{Time: someTime, Kind: record.NoteInjected, Body: []byte(`{}`)}
	with := func(change func(*record.Draft)) record.Draft {
		d := good
		change(&d)
		return d
	}
	for name, d := range map[string]record.Draft{
		"body":             with(func(d *record.Draft) { d.Body = []byte(`{"a": 1}`) }),
		"no body":          with(func(d *record.Draft) { d.Body = nil }),
		"kind":             with(func(d *record.Draft) { d.Kind = "note" }),
		"gen":              with(func(d *record.Draft) { d.Gen = 1 << 53 }),
		"year":             with(func(d *record.Draft) { d.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }),
		"year before":      with(func(d *record.Draft) { d.Time = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) }),
		"blob not listed":  with(func(d *record.Draft) { d.Blobs = []record.Blob{a} }),
		"blob not carried": with(func(d *record.Draft) { d.Body = []byte(recordtest.Listing(a)) }),
		"other blob": with(func(d *record.Draft) {
			d.Body, d.Blobs = []byte(recordtest.Listing(a)), []record.Blob{record.NewBlob(nil)}
		}),
		"wrong content": with(func(d *record.Draft) {
			d.Body, d.Blobs = []byte(recordtest.Listing(a)), []record.Blob{{Digest: a.Digest}}
		}),
		"blob is too large": with(func(d *record.Draft) { big(d, record.MaxBlob+1) }),
		"line is too long":  with(func(d *record.Draft) { d.Body = []byte(`{"a":"` + strings.Repeat("a", record.MaxLine) + `"}`) }),
	} {
		_, err := record.Seal(someThread, record.Head{}, record.Salt{}, d)
		require.ErrorIs(t, err, record.ErrInvalidEntry, name)
	}
	for name, c := range map[string]struct {
		thread record.ThreadID
		after  record.Head
	}{
		"thread": {"thread", record.Head{}},
		"seq":    {someThread, record.Head{Seq: 1<<53 - 1, Hash: a.Digest}},
	} {
		_, err := record.Seal(c.thread, c.after, record.Salt{}, good)
		require.ErrorIs(t, err, record.ErrInvalidEntry, name)
	}
	_, err := record.Seal(someThread, record.Head{}, record.Salt{}, with(func(d *record.Draft) { big(d, record.MaxBlob) }))
	require.NoError(t, err)
}

func big(d *record.Draft, n int) {
	b := record.NewBlob(bytes.Repeat([]byte("x"), n))
	d.Body, d.Blobs = []byte(recordtest.Listing(b)), []record.Blob{b}
}

func TestClone(t *testing.T) {
	e := seal(t, record.Head{}, record.ThreadCreated, `{"a":1}`)
	c := e.Clone()
	require.Equal(t, e, c)
	clear(e.Line)
	require.Equal(t, `{"a":1}`, string(c.Body))
	require.Equal(t, `"body":{"a":1}}`, string(c.Line[len(c.Line)-15:]))
	_ = append(c.Body, "overwrites nothing"...)
	require.True(t, bytes.HasSuffix(c.Line, []byte(`}}`)))
	erased := c.Erase(9)
	require.Equal(t, erased, erased.Clone())
}

func TestBlobLine(t *testing.T) {
	for _, data := range []string{"", "a", "ab", "abc", "\x00\xff\n"} {
		b := record.NewBlob([]byte(data))
		line := b.AppendLine(nil)
		got, err := record.ParseBlobLine(line, nil)
		require.NoError(t, err)
		require.Equal(t, b.Digest, got.Digest)
		require.Equal(t, data, string(got.Data))
		require.True(t, record.IsBlobLine(line))
		d, ok := record.BlobLineDigest(line)
		require.True(t, ok)
		require.Equal(t, b.Digest, d)
	}
	good := string(record.NewBlob([]byte("ab")).AppendLine(nil)) // base64 YWI=
	for old, changed := range map[string][]string{
		`YWI=`:    {`YWI`, `YWJ=`, `YWI==`, `YW I=`, "YWI=\r", "\nYWI=", `YWI-`, `YWI=YWI=`, ``, `YQ==`},
		`sha256:`: {`sha512:`, `SHA256:`, `sha256: `},
		`"data":`: {`"data": `, `"x":0,"data":`},
		`"}`:      {`"} `, `","x":0}`, `"`, ``},
	} {
		for _, c := range changed {
			_, err := record.ParseBlobLine([]byte(strings.Replace(good, old, c, 1)), nil)
			require.ErrorIs(t, err, record.ErrInvalidEntry, c)
		}
	}
	_, ok := record.BlobLineDigest([]byte(`{"v":0,"blob":"sha256:00"`))
	require.False(t, ok)
}

// FuzzParse shows that every accepted line is the one form of what it says.
func FuzzParse(f *testing.F) {
	for name := range goldens {
		for _, line := range lines(golden(f, name)) {
			f.Add(bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		// The fuzzer cannot guess a hash: it changes a line, and the line gets the hashes that it should have.
		line = []byte(rehash(string(line)))
		e, err := record.Parse(bytes.Clone(line))
		if err != nil {
			return
		}
		if len(record.ListedBlobs(e.Body)) > 0 {
			return // sealing wants their contents
		}
		if again := reseal(t, e).Line; !bytes.Equal(again, line) {
			t.Fatalf("accepted\n%s\nwhich is\n%s", line, again)
		}
		if bytes.ContainsRune(line, '\n') {
			t.Fatal("accepted a line with a newline")
		}
	})
}

func ExampleSeal() {
	first, err := record.Seal("thr_01fwhe4ydgfk1shh6w1g60eecf", record.Head{}, record.Salt{}, record.Draft{
		Time: time.Unix(0, 0), Kind: record.ThreadCreated, Body: []byte(`{"cwd":"/"}`),
	})
	fmt.Println(first.Seq, first.Hash.String()[:16], err)
	// Output: 0 265633eae3032e18 <nil>
}
